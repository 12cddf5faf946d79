"""A real browser for tests: Chromium without a window, driven over its DevTools pipe. Nothing is installed for it."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_PATIENCE = 60.0
"""Seconds that one answer may take: a machine with much else to do is slow."""


def chromium() -> str | None:
    """Return the path of the browser; None if there is no browser."""
    return next((actual for name in NAMES if (actual := shutil.which(name))), None)


class Page:
    """An open page."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back, self._left, self._number, self._session = to, back, b"", 0, ""
        self.errors: list[str] = []
        """Errors of the page's scripts."""

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol and return its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            actual = self._next()
            if actual.get("id") == self._number:
                assert "error" not in actual, actual
                result: dict[str, Any] = actual["result"]
                return result
            if actual.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.errors.append(json.dumps(actual["params"]))

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + _PATIENCE
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._back], [], [], max(end - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            self._left += os.read(self._back, 1 << 20)
        item, _, self._left = self._left.partition(b"\0")
        actual: dict[str, Any] = json.loads(item)
        return actual

    def open(self, path: Path, *, width: int = 1500, height: int = 900) -> None:
        """Open a file from disk, as a user does, and wait until its script has run."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.call("Page.navigate", url=path.resolve().as_uri())
        end = time.monotonic() + _PATIENCE
        while self.js("document.body && document.body.dataset.ready") != "true":
            assert time.monotonic() < end, f"the page does not come up: {self.errors}"
            time.sleep(0.05)

    def js(self, expression: str) -> Any:
        """Evaluate an expression in the page."""
        actual = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in actual, actual["exceptionDetails"]
        return actual["result"].get("value")

    def middle(self, element: str) -> tuple[float, float]:
        """Return the centre of the element an expression returns."""
        x, y, wide, high = self.js(
            f"(() => {{ const r = ({element}).getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; }})()"
        )
        assert wide > 0, element
        assert high > 0, element
        return x + wide / 2, y + high / 2

    def move(self, element: str) -> None:
        """Move the pointer."""
        x, y = self.middle(element)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, element: str) -> None:
        """Click with the mouse: the browser finds the element under the pointer."""
        x, y = self.middle(element)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = "none" if kind == "mouseMoved" else "left"
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=1)

    def key(self, name: str, text: str = "") -> None:
        """Press and release a key."""
        codes = {
            "Enter": 13,
            "ArrowDown": 40,
            "ArrowUp": 38,
            "ArrowLeft": 37,
            "ArrowRight": 39,
            "Tab": 9,
            "Home": 36,
            "End": 35,
        }
        params = {"key": name, "windowsVirtualKeyCode": codes.get(name, ord(name[0].upper()))}
        if len(name) == 1 or name == "Enter":
            params["text"] = text or ("\r" if name == "Enter" else name)
        self.call("Input.dispatchKeyEvent", type="keyDown", **params)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def browser() -> Iterator[Page]:
    """Start a browser and stop it at the end. There must be one (`chromium`)."""
    program = chromium()
    assert program is not None
    down, up = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(prefix="logwright-browser-", ignore_cleanup_errors=True) as home:
        words = [
            program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={home}", "about:blank",
        ]  # fmt: skip
        # The browser reads commands from 3 and answers on 4.
        script = f'exec 3<&{down[0]} 4>&{up[1]}; exec "$@"'
        process = subprocess.Popen(
            ["bash", "-c", script, "browser", *words], pass_fds=(down[0], up[1]),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(down[0])
        os.close(up[1])
        try:
            yield Page(down[1], up[0])
        finally:
            os.close(down[1])
            os.close(up[0])
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
