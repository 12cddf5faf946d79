"""Compare the predicted start with a real broker's on damaged log directories, before it loads a log.

Kafka's own server starts in one process for most cases, and in a separate process for a few.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_start import STARTS, Start, settings_of

from logwright.cli import main
from logwright.readers.startup import predict_start
from logwright.roundtrip.oracles import kafka_broker
from logwright.roundtrip.oracles.java import OracleError

CLUSTER_ID = "Kg9s5hQ2T0mYb1cVwXzA_A"


def wait_for_start(process: subprocess.Popen[bytes], log: Path, timeout: float) -> int | None:
    """Wait until a broker serves or exits. Returns its exit status, or None if it serves. Raises `OracleError`."""
    deadline = time.monotonic() + timeout
    while b" Kafka Server started" not in log.read_bytes():
        if process.poll() is not None:
            return process.returncode
        if time.monotonic() > deadline:
            raise OracleError(f"the broker neither started nor ended within {timeout:g} s")
        time.sleep(0.05)
    return None


def properties_of(home: Path, start: Start) -> dict[str, str]:
    """All settings of a broker on loopback."""
    port, controller = kafka_broker.free_ports(2)
    inputs = {
        **kafka_broker.PROPERTIES,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        **settings_of(home, start),
    }
    if "controller.quorum.voters" in inputs:
        inputs["controller.quorum.voters"] = f"1@127.0.0.1:{controller}"
    removed = [name for name, value in start.settings.items() if value is None]
    return {name: value for name, value in inputs.items() if name not in removed}


@pytest.fixture(scope="module")
def formatted(kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return two log directories a broker was started on."""
    home = tmp_path_factory.mktemp("kafka")
    dirs = [home / "d0", home / "d1"]
    for path in dirs:
        path.mkdir()
    kafka.SESSION.ask(
        "format",
        node_id=1,
        cluster_id=CLUSTER_ID,
        metadata_dir=str(dirs[0]),
        dirs=[str(path) for path in dirs],
    )
    for path, directory_id in zip(dirs, ("CfIPZLe2FUgwQUbOSWF_hQ", "ODDn20Dc_EMKAt_Sl5HOQA"), strict=True):
        (path / "meta.properties").write_text(
            f"node.id=1\ndirectory.id={directory_id}\nversion=1\ncluster.id={CLUSTER_ID}\n"
        )
    done = kafka.start(properties_of(home, Start("", lambda home: None, None)))
    assert done["started"], done["error"]
    return home


@pytest.fixture
def home(formatted: Path, tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(formatted, tmp_path / "home")
    yield tmp_path / "home"
    shutil.rmtree(tmp_path / "home", ignore_errors=True)


@pytest.mark.oracle
@pytest.mark.parametrize("start", STARTS, ids=[start.name for start in STARTS])
def test_start_of_a_broker_is_predicted(kafka: Any, home: Path, start: Start) -> None:
    start.change(home)
    properties = properties_of(home, start)
    (home / "server.properties").write_text(
        "".join(f"{name}={value}\n" for name, value in properties.items())
    )
    predicted = predict_start(home / "server.properties", version="4.3")
    real = kafka.start(properties)
    assert predicted is not None
    if not real["started"]:
        assert (predicted.opens, predicted.scope) == (False, "process")
        assert predicted.error_class == real["error"]["class"] == start.java
        real_text = (real["error"]["message"] or "").splitlines()[0]
        assert (predicted.error or "").startswith(real_text)
        assert real_text.startswith(start.error.format(home=home)[: len(real_text)])
    else:
        offline = {str(home / name) for name in start.dirs} - set(real["live_dirs"])
        assert predicted.opens is not bool(offline)
        assert predicted.scope == ("log_dir" if offline else None) == start.scope
        assert all(path in (predicted.error or "") for path in offline)


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["healthy", "identity_empty", "vote_text"])
def test_process_of_a_broker_ends_as_predicted(
    kafka: Any, home: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    start = next(start for start in STARTS if start.name == name)
    start.change(home)
    config = home / "server.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in properties_of(home, start).items()))
    with pytest.raises(SystemExit) as status:
        main(["verify", str(config), "--as-system"])
    capsys.readouterr()
    with (home / "broker.log").open("wb") as log:
        process = subprocess.Popen(
            kafka_broker.command_line(config), stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=home
        )
        try:
            assert process.stdin is not None
            ended = wait_for_start(process, home / "broker.log", 60)
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
    assert ended == (None if start.scope is None else 1)
    assert status.value.code == (0 if start.scope is None else 3)


@pytest.mark.oracle
def test_lock_of_another_process_keeps_a_broker_from_starting(kafka: Any, home: Path) -> None:
    properties = properties_of(home, Start("", lambda home: None, None))
    config = home / "server.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    hold = "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(home / "d1" / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        predicted, real = predict_start(config), kafka.start(properties)
        holder.communicate()
    assert predicted is not None
    assert not real["started"]
    assert (predicted.error_class, predicted.error) == (real["error"]["class"], real["error"]["message"])
