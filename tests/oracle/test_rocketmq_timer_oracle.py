"""The timer of a store against RocketMQ's own: what it refuses and removes on start, and what it delivers from a repaired store."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

import logwright as lw
from logwright.roundtrip.oracles import rocketmq_timer as oracle

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
SIZE = 1040
CONFIG = {
    "mappedFileSizeCommitLog": 65536, "mappedFileSizeConsumeQueue": 2000, "mappedFileSizeTimerLog": SIZE, "maxHashSlotNum": 50,
    "maxIndexNum": 1000,
}  # fmt: skip
DELAYS = (*range(1, 5), *(30,) * 3, *range(30, 60), 3600, 3600, 3 * 86_400)
"""Delays in seconds. The first are over before the kill, others before the restart, the last are much longer."""
DELETED = 5
"""The message with a deletion. The key is what 5.5.0 expects; 5.3.3 does not find the message."""
FIRST = int(os.environ.get("LOGWRIGHT_ROCKETMQ_FIRST_SEED", "0"))


@lru_cache
def killed(version: str, home: Path) -> Path:
    """Return a copy of a running store whose timer has delivered some of its messages."""
    reason = oracle.available(version)
    if reason:
        pytest.skip(reason)
    running, copy = home / f"running {version}", home / f"killed {version}"
    (running / "config").mkdir(parents=True)
    now = int(time.time() * 1000)
    (running / "config/timercheck").write_bytes(now.to_bytes(8, "big").ljust(4096, b"\0"))
    assert oracle.load(version, running, CONFIG, start=True)
    messages: list[dict[str, Any]] = [
        {"topic": "Orders", "body": b"%d" % i, "due": now + 1000 * delay, "properties": {"UNIQ_KEY": f"u{i}"}}
        for i, delay in enumerate(DELAYS)
    ]
    messages.append(
        {
            "topic": "Orders", "body": b"deletion", "due": now + 30_000,
            "properties": {"UNIQ_KEY": "d", "TIMER_DEL_UNIQKEY": f"u{DELETED}"},
        }
    )  # fmt: skip
    oracle.put(version, messages)
    oracle.deliver(version, "Orders", 7)
    shutil.copytree(running, copy)
    oracle.drop(version)
    shutil.rmtree(copy / "rocksdbstore", ignore_errors=True)
    assert lw.verify(copy).ok
    return copy


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("timer")


# Random damage


def files(store: Path) -> list[Path]:
    return sorted((store / "timerlog").iterdir())


def flip(store: Path, chance: random.Random) -> None:
    path = chance.choice(files(store))
    data = bytearray(path.read_bytes())
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)


def overwrite(store: Path, chance: random.Random) -> None:
    path = chance.choice(files(store))
    data = bytearray(path.read_bytes())
    at = chance.randrange(len(data) // 52 + 1) * 52 + chance.choice([0, 0, 12])
    length = max(min(chance.choice([4, 8, 52]), len(data) - at), 0)
    data[at : at + length] = chance.choice([bytes(length), chance.randbytes(length)])
    path.write_bytes(data)


def cut(store: Path, chance: random.Random) -> None:
    os.truncate(chance.choice(files(store)), chance.choice([0, 52, 1000, SIZE + 1]))


def rename(store: Path, chance: random.Random) -> None:
    path = chance.choice(files(store))
    path.rename(path.with_name(chance.choice(["lost", path.name.lstrip("0") or "0", "-1", f"{9999:020d}"])))


def swap(store: Path, chance: random.Random) -> None:
    first, other = chance.choices(files(store), k=2)
    data = first.read_bytes()
    first.write_bytes(other.read_bytes())
    other.write_bytes(data)


def remove(store: Path, chance: random.Random) -> None:
    chance.choice(files(store)).unlink()


def flushed(store: Path, chance: random.Random) -> None:
    path = store / "config/timercheck"
    data = bytearray(path.read_bytes())
    value = chance.choice([0, 52, SIZE, 2 * SIZE, 5000, -1, 1 << 40])
    data[8:16] = value.to_bytes(8, "big", signed=True)
    path.write_bytes(data)


def wheel(store: Path, chance: random.Random) -> None:
    os.truncate(store / "timerwheel", chance.choice([0, 32, 38_707_200, 38_707_232]))


DAMAGES: tuple[Callable[[Path, random.Random], None], ...] = (
    flip, flip, overwrite, cut, rename, swap, remove, flushed, wheel,
)  # fmt: skip


@pytest.mark.parametrize("version", oracle.VERSIONS)
def test_start_of_a_damaged_timer_equals_the_real_one(version: str, home: Path, tmp_path: Path) -> None:
    intact = killed(version, home)
    for seed in range(FIRST, FIRST + 40):
        chance, store = random.Random(seed), tmp_path / str(seed)
        shutil.copytree(intact, store)
        damages = chance.choices(DAMAGES, k=chance.choice([1, 1, 2]))
        for damage in damages:
            if files(store):
                damage(store, chance)
        before = {path.name for path in files(store)}
        system = lw.verify(store, as_system=version, mappedFileSizeTimerLog=SIZE).system
        removed = {
            name.removeprefix("timerlog/") for name in system["removes"] if name.startswith("timerlog/")
        }
        try:
            loaded = oracle.load(version, store, CONFIG)
        except oracle.JavaError:
            loaded = False
        assert system["opens"] is loaded, (seed, damages)
        if loaded:
            assert removed == before - {path.name for path in files(store)}, (seed, damages)
        shutil.rmtree(store)


REPAIRED: dict[str, Callable[[Path], object]] = {
    "a missing file": lambda store: files(store)[-2].unlink(),
    "no timer log": lambda store: shutil.rmtree(store / "timerlog"),
    "a short file": lambda store: os.truncate(files(store)[0], 520),
    "a short wheel": lambda store: os.truncate(store / "timerwheel", 100),
    "no wheel": lambda store: (store / "timerwheel").unlink(),
    "a short timercheck": lambda store: os.truncate(store / "config/timercheck", 56),
}


@pytest.mark.parametrize(
    ("version", "damage"), [*(("5.5.0", damage) for damage in REPAIRED), ("5.3.3", "no wheel")]
)
def test_repaired_timer_delivers_each_message_once(
    version: str, damage: str, home: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(killed(version, home), store)
    REPAIRED[damage](store)
    lw.repair(store, tmp_path / "repaired", mappedFileSizeTimerLog=SIZE)
    assert lw.verify(tmp_path / "repaired").ok
    wait_until_due(tmp_path / "repaired")
    assert oracle.load(version, tmp_path / "repaired", CONFIG, start=True)
    bodies, pending = delivered(version)
    oracle.drop(version)
    expected = [
        b"%d" % i for i, delay in enumerate(DELAYS) if delay < 3600 and (i != DELETED or version == "5.3.3")
    ]
    assert Counter(bodies) == Counter(expected)
    assert pending == 3


def delivered(version: str) -> tuple[list[bytes], int]:
    """Return what the timer delivers until it has delivered nothing for three seconds, and the number of messages in later slots."""
    bodies, pending = oracle.deliver(version, "Orders", 5)
    for _ in range(30):
        before = len(bodies)
        bodies, pending = oracle.deliver(version, "Orders", 3)
        if len(bodies) == before:
            break
    return bodies, pending


def wait_until_due(store: Path) -> None:
    """Wait until the messages with short delays are due."""
    times = {
        row["physical_offset"]: next(
            pair["value"] for pair in row["properties"] if pair["key"] == "TIMER_OUT_MS"
        )
        for row in lw.read(store, columns="*").to_pylist()
        if row["topic"] == "rmq_sys_wheel_timer"
    }
    due = max(int(value) for value in times.values() if int(value) < min(map(int, times.values())) + 100_000)
    time.sleep(max(due / 1000 + 1 - time.time(), 0))


@pytest.mark.parametrize("version", oracle.VERSIONS)
def test_timer_goes_on_after_a_lost_message_of_its_queue(version: str, home: Path, tmp_path: Path) -> None:
    """The placeholder of the message must not stop the timer, which reads the queue again because timercheck is lost."""
    store = tmp_path / "store"
    shutil.copytree(killed(version, home), store)
    lost = next(row for row in lw.read(store, columns="*").to_pylist() if row["body"] == b"7")
    path = store / f"commitlog/{0:020d}"
    data = bytearray(path.read_bytes())
    data[lost["physical_offset"] + 88] ^= 1
    path.write_bytes(data)
    shutil.rmtree(store / "timerlog")
    (store / "timerwheel").unlink()
    lw.repair(store, tmp_path / "repaired", mappedFileSizeTimerLog=SIZE)
    check = tmp_path / "repaired/config/timercheck"
    check.write_bytes(int(time.time() * 1000).to_bytes(8, "big").ljust(4096, b"\0"))
    for path in files(tmp_path / "repaired"):
        path.unlink()
    (tmp_path / "repaired/timerwheel").unlink()
    wait_until_due(tmp_path / "repaired")
    assert oracle.load(version, tmp_path / "repaired", CONFIG, start=True)
    bodies, pending = delivered(version)
    oracle.drop(version)
    assert {b"%d" % i for i, delay in enumerate(DELAYS) if delay < 3600} - set(bodies) <= {
        b"7",
        b"%d" % DELETED,
    }
    assert pending == 3
