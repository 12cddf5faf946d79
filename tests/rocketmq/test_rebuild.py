"""Rebuild derived files: they equal those of a broker, and a damaged commit log is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_stores import HOME
from stores import ROWS, SIZES, SOUND, placed, set_bytes, sizes

import logwright as lw
from logwright.codec.rocketmq.formats.commitlog.codec import CODEC

pytestmark = pytest.mark.filterwarnings("ignore::logwright.DamageWarning")


@pytest.mark.alike
@pytest.mark.parametrize(
    "case",
    [name for name in SOUND if (HOME / name / "after" / "5.5.0").exists() and name != "multipath"]
    + ["hand_dup"],
)
def test_rebuilt_queues_equal_a_brokers(case: str, tmp_path: Path) -> None:
    home, out = placed(case, tmp_path), tmp_path / "out"
    after = HOME / case / "after" / "5.5.0"
    if case in ("rolled", "cqext", "lmq"):
        pytest.skip("the broker rebuilt only a part, or used settings that no file records")
    lw.rebuild(home, out, what="consumequeue", **sizes(case, home))
    expected = {
        str(path.relative_to(after)): path.read_bytes()
        for path in (after / "consumequeue").rglob("*")
        if path.is_file()
    }
    actual = {
        str(path.relative_to(out)): path.read_bytes()
        for path in (out / "consumequeue").rglob("*")
        if path.is_file()
    }
    assert actual == expected


def test_rebuild_refuses_a_log_file_of_another_size(tmp_path: Path) -> None:
    """A broker does not load it."""
    home = placed("hand_dup", tmp_path)
    (log,) = (home / "commitlog").iterdir()
    log.write_bytes(log.read_bytes() + b"\0")
    options = {"mappedFileSizeCommitLog": log.stat().st_size - 1}
    with pytest.raises(lw.DamageError, match="only be rebuilt from an undamaged one"):
        lw.rebuild(home, tmp_path / "out", **options)
    lw.repair(home, tmp_path / "out", **options)
    assert lw.verify(tmp_path / "out").ok


def test_rebuild_refuses_a_damaged_log(tmp_path: Path) -> None:
    with pytest.raises(lw.DamageError, match="the commit log is damaged"):
        lw.rebuild(placed("dmg_cl_body_old", tmp_path), tmp_path / "out")


def test_refused_message_after_a_wrong_queue_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queues are found wrong before the message is read, so the comparison of the index is the first to meet it."""
    monkeypatch.setattr(CODEC, "window", 4096)
    monkeypatch.setattr("logwright.codec.rocketmq.derive._PENDING", 1)
    topic = "SCHEDULE_TOPIC_XXXX"
    rows = [
        {"topic": topic, "body": b"body %d" % n, "properties": [{"key": "DELAY", "value": "1"}]} for n in range(200)
    ]  # fmt: skip
    sizes = {"mappedFileSizeCommitLog": 1 << 16, "mappedFileSizeConsumeQueue": 400}
    lw.write(rows, tmp_path / "store", "rocketmq.store", maxHashSlotNum=8, maxIndexNum=2000, **sizes)
    log, queue = (
        tmp_path / "store/commitlog" / ("0" * 20),
        tmp_path / f"store/consumequeue/{topic}/0" / ("0" * 20),
    )
    head, tail = log.read_bytes()[:20_000], log.read_bytes()[20_000:]
    log.write_bytes(head + tail.replace(b"DELAY\x011", b"DELAY\x01x", 1))
    queue.write_bytes(b"\x40" + queue.read_bytes()[1:])
    with pytest.raises(lw.DamageError, match="a broker ends the log at this message") as error:
        lw.repair(tmp_path / "store", tmp_path / "out", **sizes)
    assert (error.value.offset or 0) > 19_000


@pytest.mark.parametrize("kinds", [None, "checkpoint", "index,checkpoint"])
def test_checkpoint_has_the_time_of_the_last_full_index_file(kinds: str | None, tmp_path: Path) -> None:
    """After an unclean stop a broker deletes all index files with later entries, and indexes only the last messages again."""
    home = tmp_path / "store"
    lw.write(ROWS, home, "rocketmq.store", **SIZES)
    before = (home / "checkpoint").read_bytes()
    assert any(before[16:24])
    lw.rebuild(home, tmp_path / "rebuilt", what=kinds)
    assert (tmp_path / "rebuilt/checkpoint").read_bytes() == before


@pytest.mark.parametrize("damaged", ["", "index", "consumequeue"])
def test_repaired_checkpoint_has_the_time_of_the_last_full_index_file(damaged: str, tmp_path: Path) -> None:
    home = tmp_path / "store"
    lw.write(ROWS, home, "rocketmq.store", **SIZES)
    before = (home / "checkpoint").read_bytes()
    (home / "checkpoint").write_bytes(b"")
    if damaged:
        path = min(path for path in (home / damaged).rglob("*") if path.is_file())
        set_bytes(path, 8, bytes([255] * 4))
    lw.repair(home, tmp_path / "out", **SIZES)
    assert (tmp_path / "out/checkpoint").read_bytes() == before
