"""Repair golden stores, with each strategy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from golden_stores import CASES, HEALTHY
from stores import INDEX, ROWS, SIZES, SOUND, placed, real_rows, set_bytes, sizes

import logwright as lw

pytestmark = pytest.mark.filterwarnings("ignore::logwright.DamageWarning")


DAMAGED = [name for name in CASES if name not in HEALTHY and name != "dmg_cl_missing_all"]


@pytest.mark.alike
@pytest.mark.parametrize("case", DAMAGED)
def test_repaired_store_is_undamaged_and_has_every_undamaged_message(case: str, tmp_path: Path) -> None:
    home, out = placed(case, tmp_path), tmp_path / "out"
    options = sizes(case, home)
    lw.repair(home, out, **options)
    assert real_rows(out, **options) == real_rows(home, correct=True, **options)
    report = lw.verify(out, "rocketmq.store", as_system="5.5.0", **options)
    assert report.ok, report.text()
    assert report.system is not None
    assert report.system["opens"], report.system["error"]
    assert report.system["rows_lost"] == 0


@pytest.mark.parametrize("strategy", ["salvage", "prefix"])
def test_store_without_a_commit_log_is_neither_repaired_nor_rebuilt(strategy: str, tmp_path: Path) -> None:
    home, out = placed("dmg_cl_missing_all", tmp_path), tmp_path / "out"
    error = "nothing is left: the commit log has no undamaged message.*pass storePathCommitLog"
    with pytest.raises(lw.DamageError, match=f"(?s){error}"):
        lw.repair(home, out, strategy=strategy)
    with pytest.raises(lw.DamageError, match=f"(?s){error}"):
        lw.rebuild(home, out)
    assert not out.exists()


def test_store_that_never_had_a_message_is_repaired_unchanged(tmp_path: Path) -> None:
    home, out = placed("empty", tmp_path), tmp_path / "out"
    lw.repair(home, out, codec="rocketmq.store")
    assert {path.name for path in out.iterdir()} == {path.name for path in home.iterdir()}


def test_damaged_checkpoint_of_a_store_without_messages_becomes_that_of_a_new_store(tmp_path: Path) -> None:
    home, out = placed("empty", tmp_path), tmp_path / "out"
    original = (home / "checkpoint").read_bytes()
    (home / "checkpoint").write_bytes(b"")
    lw.repair(home, out, codec="rocketmq.store")
    assert (out / "checkpoint").read_bytes() == original


@pytest.mark.alike
@pytest.mark.parametrize("case", SOUND)
def test_repair_of_an_undamaged_store_changes_nothing(case: str, tmp_path: Path) -> None:
    home, out = placed(case, tmp_path), tmp_path / "out"
    if case == "multipath":
        pytest.skip("its two directories become one")
    lw.repair(home, out, **sizes(case, home))
    files = {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}
    assert {
        str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()
    } == files


@pytest.mark.parametrize("case", ["dmg_cl_body_old", "dmg_cl_missing_mid", "dmg_cl_body_last"])
def test_strategy_prefix_keeps_the_messages_before_the_first_loss(case: str, tmp_path: Path) -> None:
    home, out = placed(case, tmp_path), tmp_path / "out"
    options = sizes(case, home)
    lw.repair(home, out, strategy="prefix", correct=False, **options)
    before, after = real_rows(home, **options), real_rows(out, **options)
    assert after == before[: len(after)]
    assert 0 < len(after) < len(before)
    report = lw.verify(out, "rocketmq.store", as_system="5.5.0", **options)
    assert report.ok, report.text()


@pytest.mark.parametrize("case", ["dmg_cl_body_last", "dmgk_body_old", "dmg_cq_missing_all"])
def test_strategy_system_keeps_the_messages_that_a_broker_keeps(case: str, tmp_path: Path) -> None:
    home, out = placed(case, tmp_path), tmp_path / "out"
    options = sizes(case, home)
    served = lw.read(home, "rocketmq.store", mode="AS_SYSTEM", **options)
    lw.repair(home, out, strategy="system", **options)
    assert real_rows(out, **options) == served["physical_offset"].to_pylist()


@pytest.mark.extended
@pytest.mark.parametrize("folder", ["commitlog", "consumequeue", "index"])
def test_one_changed_byte_anywhere_in_a_store_costs_at_most_one_message(folder: str, tmp_path: Path) -> None:
    """One bit of each byte of a log, a queue and an index file is flipped. Flips outside of the log cost no message."""
    home = tmp_path / "store"
    lw.write(ROWS[:6], home, "rocketmq.store", **SIZES)
    sound = lw.read(home, columns=["queue_id", "body"]).to_pylist()
    path = next(path for path in sorted((home / folder).rglob("*")) if path.is_file())
    data = path.read_bytes()
    for at in range(min(len(data.rstrip(b"\0")) + 8, len(data))):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        report = lw.verify(home, "rocketmq.store", **SIZES)
        rows = lw.read(
            home, "rocketmq.store", mode="DROPMALFORMED", columns=["queue_id", "body"], **SIZES
        ).to_pylist()
        lost = [row for row in sound if row not in rows]
        assert len(lost) <= (folder == "commitlog"), at
        assert not lost or not report.ok, at


@pytest.mark.parametrize("in_place", [False, True])
def test_damage_in_one_of_several_commit_log_paths_is_repaired(in_place: bool, tmp_path: Path) -> None:
    """Out of place the result has one commit log folder. In place each file stays in its path."""
    home, paths = tmp_path / "store", [tmp_path / "disk1", tmp_path / "disk2"]
    options = {**SIZES, "storePathCommitLog": ",".join(map(str, paths))}
    lw.write(ROWS, home, "rocketmq.store", **options)
    del options["maxIndexNum"]
    rows = real_rows(home, **options)
    names = [sorted(path.iterdir()) for path in paths]
    log = names[1][0]
    data = log.read_bytes()
    log.write_bytes(data[:100] + bytes([data[100] ^ 3]) + data[101:])
    if in_place:
        lw.repair(home, in_place=True, backup=tmp_path / "backup", **options)
        assert [sorted(path.iterdir()) for path in paths] == names
    else:
        home = tmp_path / "out"
        lw.repair(tmp_path / "store", home, **options)
        del options["storePathCommitLog"]
        assert len(list((home / "commitlog").iterdir())) == sum(map(len, names))
    assert lw.verify(home, **options).ok
    assert real_rows(home, **options) == [row for row in rows if row != int(log.name)]


def test_damage_that_stays_in_one_of_several_commit_log_paths_does_not_prevent_a_repair(
    tmp_path: Path,
) -> None:
    """Nothing proves the right topic of the message, because no queue lists it."""
    home, paths = tmp_path / "store", [tmp_path / "disk1", tmp_path / "disk2"]
    options = {**SIZES, "storePathCommitLog": ",".join(map(str, paths))}
    rows = [
        {"topic": "T", "body": b"x" * 100, "store_timestamp_ms": 1_700_000_000_000 + n} for n in range(20)
    ]
    lw.write(rows, home, "rocketmq.store", **options)
    shutil.rmtree(home / "consumequeue")
    log = min(paths[1].iterdir())
    set_bytes(log, 88 + 100 + 1, b".")
    del options["maxIndexNum"]
    lw.repair(home, tmp_path / "out", **options)
    assert len(lw.read(tmp_path / "out")) == len(rows)


def test_damaged_configuration_is_replaced(tmp_path: Path) -> None:
    """By its `.bak` file, as a broker does; topics.json by the topics of all messages."""
    lw.write(ROWS, tmp_path / "store", "rocketmq.store", **SIZES)
    config = tmp_path / "store/config"
    topics = (config / "topics.json").read_bytes()
    (config / "topics.json").write_bytes(topics.replace(b'"', b"\x00", 1))
    offsets = b'{"offsetTable":{"T0@group":{0:2}}}'
    (config / "consumerOffset.json").write_bytes(offsets[:-3])
    (config / "consumerOffset.json.bak").write_bytes(offsets)
    (config / "delayOffset.json").write_bytes(b"\xff")
    with pytest.raises(lw.UsageError, match=r"config/topics\.json is damaged"):
        lw.write(ROWS, tmp_path / "store", "rocketmq.store", mode="append", **SIZES)
    report = lw.repair(tmp_path / "store", tmp_path / "out")
    assert (tmp_path / "out/config/topics.json").read_bytes() == topics
    assert (tmp_path / "out/config/consumerOffset.json").read_bytes() == offsets
    assert not (tmp_path / "out/config/delayOffset.json").exists()
    assert "config/consumerOffset.json was damaged and has the content of" in " ".join(report.text().split())
    assert lw.read(tmp_path / "out").equals(lw.read(tmp_path / "store"))


def test_files_whose_content_a_broker_does_not_need_do_not_prevent_a_repair(tmp_path: Path) -> None:
    home = tmp_path / "store"
    lw.write(ROWS, home, "rocketmq.store", **SIZES)
    (home / "abort").write_bytes(b"?")
    (home / "abort.bak").write_bytes(b"?")
    (home / "config/consumerOffset.json").write_bytes(b"")
    lw.repair(home, tmp_path / "out", **SIZES)
    assert [(tmp_path / "out" / name).read_bytes() for name in ("abort", "abort.bak")] == [b"", b""]
    assert not (tmp_path / "out/config/consumerOffset.json").exists()
    assert lw.verify(tmp_path / "out").ok


@pytest.mark.parametrize("file", [0, 1, 2])
def test_log_file_of_another_store_does_not_prevent_a_repair(file: int, tmp_path: Path) -> None:
    """A broker gives its messages no unit if messages before them have their queue offsets."""
    options = {"mappedFileSizeCommitLog": 2048, "mappedFileSizeConsumeQueue": 400, **INDEX}
    for name, body in (("store", 100), ("other", 170)):
        rows = [
            {"topic": "T", "queue_id": n // 2 % 2, "store_timestamp_ms": n, "body": b"x" * body} for n in range(27)
        ]  # fmt: skip
        lw.write(rows, tmp_path / name, "rocketmq.store", **options)
    log = sorted((tmp_path / "store/commitlog").iterdir())[file]
    shutil.copyfile(tmp_path / "other/commitlog" / log.name, log)
    expected = lw.read(tmp_path / "store", mode="DROPMALFORMED")["physical_offset"].to_pylist()
    lw.repair(tmp_path / "store", tmp_path / "out", **INDEX)
    report = lw.verify(tmp_path / "out", **INDEX)
    assert "no unit" not in str(report.to_dict())
    assert lw.read(tmp_path / "out", mode="DROPMALFORMED")["physical_offset"].to_pylist() == expected
