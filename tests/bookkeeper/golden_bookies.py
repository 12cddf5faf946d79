"""The golden bookies, and what a real bookie and a real client made of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from golden_traits import unpacked

from logwright.codec import registry
from logwright.codec.engine.startup import Started
from logwright.codec.option import Options
from logwright.readers.listing import open_listing, open_store

ARCHIVE = Path(__file__).resolve().parents[2] / "corpora" / "golden" / "bookkeeper" / "stores.tar.xz"
SETTINGS = ("ledgerStorageClass", "logSizeLimit", "pageSize")
LAYOUT = registry.get_layout("bookkeeper.bookie")


def home() -> Path:
    return unpacked(ARCHIVE)


@cache
def names() -> tuple[str, ...]:
    cases = {path.parent.name for path in home().glob("*/truth.jsonl")}
    return tuple(sorted(cases - {"map_batches"}))


@dataclass
class Case:
    """A case: its settings, and the records of a truth file by kind."""

    name: str
    info: dict[str, Any]
    lines: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return home() / self.name

    @property
    def start(self) -> dict[str, Any]:
        return self.lines["startup"][0]

    @property
    def passwords(self) -> dict[int, bytes]:
        return {
            line["ledger"]: bytes.fromhex(line.get("password_hex") or "")
            for line in self.info.get("ledgers") or []
        }

    @property
    def options(self) -> dict[str, Any]:
        config = self.info.get("config") or {}
        options: dict[str, Any] = {name: config[name] for name in SETTINGS if name in config}
        if self.name == "cookie_layout_3":
            options["instanceId"] = "0893fd37-717a-4b85-9948-a911175eebeb"
        return options | ({"passwd": self.passwords} if self.passwords else {})

    def started(self, **more: Any) -> Started:
        """Simulate the start of a bookie."""
        options = Options(LAYOUT.read_options, {**self.options, **more})
        directory = open_store(open_listing(str(self.path)), LAYOUT, options)
        startup = LAYOUT.capabilities.predict
        assert startup is not None
        return startup.run(directory, LAYOUT.plan(directory, options), options, version=None, clean=None)


@cache
def case(name: str, truth: str = "truth.jsonl") -> Case:
    info = json.loads((home() / name / "case.json").read_text())
    out = Case(name, info)
    for line in (home() / name / truth).read_text().splitlines():
        record = json.loads(line)
        out.lines.setdefault(record["kind"], []).append(record)
    return out
