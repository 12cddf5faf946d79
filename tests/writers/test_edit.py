"""`edit`: removed data is nowhere in the result, and all other bytes are unchanged."""

from __future__ import annotations

import io
import itertools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from command_line import run
from edited_stores import ROWS, all_bytes, batches_by_offset, flat_text, secret, write_users
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import logwright as lw
from logwright.corpora.cases import cases

KAFKA = cases("kafka")


ZOOKEEPER = cases("zookeeper")


COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


def table(count: int = ROWS) -> pa.Table:
    return pa.table(
        {
            "key": pa.array([b"user-%03d" % (n % 100) for n in range(count)], pa.binary()),
            "value": pa.array([secret(n % 100) + b"%d" % n for n in range(count)], pa.binary()),
            "timestamp": pa.array(range(1000, 1000 + count), pa.timestamp("ms", "UTC")),
            "headers": pa.array(
                [[{"key": "mail", "value": b"mail-%03d@x" % (n % 100)}] for n in range(count)],
                pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])),
            ),
        }
    )


def partition(path: Path, **options: Any) -> Path:
    lw.write(
        table(),
        path,
        "kafka.partition",
        segment_bytes="60k",
        batch_size="4k",
        topic_id="q83vASNFZ4mrze8BI0VniQ",
        **options,
    )
    return path


# Kafka


@pytest.mark.alike
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_records_with_a_key_are_dropped(tmp_path: Path, compression: str) -> None:
    source = partition(tmp_path / "a" / "orders-0", compression_type=compression)
    out = tmp_path / "b" / "orders-0"
    report = lw.edit(source, out, drop="key == user-007")
    assert secret(7) not in all_bytes(out)
    assert b"user-007" not in all_bytes(out)
    assert b"mail-007@x" not in all_bytes(out)
    difference = lw.diff(source, out)
    assert difference.counts == {
        "a": ROWS,
        "b": ROWS - 20,
        "same": ROWS - 20,
        "added": 0,
        "removed": 20,
        "changed": 0,
    }
    assert lw.verify(out, as_system=True).ok
    assert report.rows_kept == ROWS - 20
    assert sum(removed["rows_lost"] for removed in report.cut or ()) == 20
    assert not report.incomplete


def test_batches_without_a_matching_record_keep_their_bytes(tmp_path: Path) -> None:
    source = partition(tmp_path / "a" / "orders-0", compression_type="zstd")
    out = tmp_path / "b" / "orders-0"
    report = lw.edit(
        source, out, redact="offset == 700 or offset == 1500", columns="value,headers", with_="gone"
    )
    before, after = batches_by_offset(source), batches_by_offset(out)
    assert sorted(before) == sorted(after)
    assert sum(before[base] != after[base] for base in before) == 2 == len(report.cut or ())
    difference = lw.diff(source, out)
    assert difference.counts["changed"] == 2
    assert difference.columns == {"value": 2, "headers": 2}
    row = lw.read(out, filter="offset == 700").to_pylist()[0]
    assert (row["key"], row["value"], row["headers"]) == (b"user-000", b"gone", [])
    # In the header only fields that depend on the records change.
    kept = [
        column
        for column in lw.codecs("kafka.log")[0]["tables"]["frames"]["columns"]
        if column["name"] not in ("position", "size", "crc", "batch_length", "payload")
    ]
    assert lw.diff(source, out, view="frames", columns=[batch["name"] for batch in kept]).equal


def test_all_records_of_some_batches_are_dropped(tmp_path: Path) -> None:
    """The log ends at the same offset, and every record keeps its offset."""
    source = partition(tmp_path / "a" / "orders-0", compression_type="gzip")
    out = tmp_path / "b" / "orders-0"
    lw.edit(source, out, drop="offset >= 1000")
    assert lw.read(out).num_rows == 1000
    assert lw.inspect(out)["facts"]["log_end_offset"] == ROWS
    assert lw.verify(out, as_system=True).ok
    empty = lw.read(out, view="frames", filter="records_count == 0", columns="*").to_pylist()
    assert empty
    assert {(batch["size"], batch["compression"], batch["base_timestamp"]) for batch in empty} == {
        (61, "none", -1)
    }


def test_max_timestamp_is_that_of_the_remaining_records(tmp_path: Path) -> None:
    source = partition(tmp_path / "a" / "orders-0")
    last = lw.read(source, view="frames").to_pylist()[0]["last_offset"]
    out = tmp_path / "b" / "orders-0"
    lw.edit(source, out, drop=[("offset", "==", last)])
    first = lw.read(out, view="frames").to_pylist()[0]
    assert (first["last_offset"], first["max_timestamp"]) == (last, 1000 + last - 1)


def test_transactions_and_producers_are_kept(tmp_path: Path) -> None:
    source = KAFKA["v2_txn_interleaved"].partition
    offset = lw.read(source, columns="offset").column("offset").to_pylist()[4]
    out = tmp_path / source.name
    lw.edit(source, out, redact=f"offset == {offset}", with_=None)
    columns = [
        column["name"]
        for column in lw.codecs("kafka.log")[0]["tables"]["rows"]["columns"]
        if column["name"] not in ("position", "topic", "partition")
    ]
    difference = lw.diff(source, out, view="log", columns=columns)
    assert difference.columns == {"value": 1}
    assert difference.first is not None
    assert difference.first["columns"]["value"][1] is None
    for view in ("read_committed", "read_uncommitted"):
        assert lw.diff(source, out, view=view, columns="offset").equal


@settings(
    max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    drop=st.sets(st.integers(0, 59), max_size=30), redact=st.sets(st.integers(0, 59), max_size=30),
    compression=st.sampled_from(COMPRESSIONS), batch=st.sampled_from(["100", "500", "16k"]),
)  # fmt: skip
def test_any_rows_may_be_dropped_or_redacted(
    tmp_path_factory: pytest.TempPathFactory, drop: set[int], redact: set[int], compression: str, batch: str
) -> None:
    home = tmp_path_factory.mktemp("any")
    lw.write(
        table(60), home / "a" / "orders-0", "kafka.partition", compression_type=compression, batch_size=batch
    )
    conditions = {
        "drop": [("offset", "in", sorted(drop))] if drop else None,
        **({"redact": [("offset", "in", sorted(redact))], "with_": b"-"} if redact or not drop else {}),
    }
    lw.edit(home / "a" / "orders-0", home / "b" / "orders-0", **conditions, allow_no_match=True)
    before = lw.read(home / "a" / "orders-0").to_pylist()
    want = [
        {**row, "value": b"-" if row["offset"] in redact else row["value"]}
        for row in before
        if row["offset"] not in drop
    ]
    assert lw.read(home / "b" / "orders-0").to_pylist() == want
    assert lw.verify(home / "b" / "orders-0").ok
    old, new = batches_by_offset(home / "a" / "orders-0"), batches_by_offset(home / "b" / "orders-0")
    touched = drop | redact
    bases = [*sorted(old), 60]
    for base, following in itertools.pairwise(bases):
        if not touched & set(range(base, following)):
            assert old[base] == new[base]


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_single_segment_is_edited_like_its_directory(tmp_path: Path, compression: str) -> None:
    source = partition(tmp_path / "a" / "orders-0", compression_type=compression)
    log = sorted(source.glob("*.log"))[-1]
    out = tmp_path / "b" / log.name
    report = lw.edit(log, out, drop="key == user-007")
    assert lw.diff(log, out).counts["removed"] == len(report.cut or ())
    assert secret(7) not in all_bytes(out.parent)
    assert "rebuild its directory" in flat_text(report)
    backup = tmp_path / "backup"
    before = log.read_bytes()
    lw.edit(log, redact="key == user-008", in_place=True, backup=backup)
    assert (backup / log.name).read_bytes() == before
    assert log.read_bytes() != before
    assert lw.read(log, filter="key == user-008").column("value").to_pylist()[0] == b""
    second_report = lw.edit(
        log, drop="key == nobody", in_place=True, backup=tmp_path / "other", allow_no_match=True
    )
    assert "nothing matches" in flat_text(second_report)
    dry = lw.edit(log, drop="key == user-009", dry_run=True)
    assert "would be edited" in flat_text(dry)


# Filters without a match


def stores(path: Path) -> dict[str, Path]:
    """Create a store of each system, and a single file of one."""
    db = write_users(path / "db", 50)
    log = next(partition(path / "orders-0").glob("*.log"))
    zookeeper = shutil.copytree(ZOOKEEPER["basic"].path / "version-2", path / "zookeeper" / "version-2")
    return {"partition": log.parent, "file": log, "db": db, "zookeeper": zookeeper}


@pytest.mark.alike
@pytest.mark.parametrize("kind", ["partition", "file", "db", "zookeeper"])
@pytest.mark.parametrize("column", ["drop", "redact", "both"])
def test_filter_without_a_match_is_an_error_and_writes_nothing(
    tmp_path: Path, kind: str, column: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = stores(tmp_path / "stores")[kind], tmp_path / "results" / "orders-0"
    out.parent.mkdir()
    name, conditions, columns = (
        ("path", "path >= /", "data") if kind == "zookeeper" else ("key", "key >= user", "value")
    )
    filters: dict[str, Any] = {"drop": f"{name} == /nobody", "redact": f"{name} == x'ff00'"}
    if kind == "zookeeper":
        filters["redact"] = "path == /nobody/at/all"
    asked = {"drop": filters["drop"], "redact": conditions} if column == "both" else {column: filters[column]}
    before = files_of(source)
    with pytest.raises(
        lw.NotFoundError, match=f"no row matches {'drop' if column == 'both' else column}: {name} == "
    ):
        lw.edit(source, out, columns=columns, **asked)
    with pytest.raises(lw.NotFoundError, match="nothing was written"):
        lw.edit(source, columns=columns, dry_run=True, **asked)
    backup = tmp_path / "backup"
    with pytest.raises(lw.NotFoundError, match="allow_no_match"):
        lw.edit(source, columns=columns, in_place=True, backup=backup, **asked)
    assert not backup.exists()
    assert files_of(source) == before
    words = [word for option, filter in asked.items() for word in (f"--{option}", filter)]
    assert run("edit", str(source), "--out", str(out), "--columns", columns, *words) == 1
    assert "no row matches" in capsys.readouterr().err
    assert list(out.parent.iterdir()) == []
    assert run("edit", str(source), "--out", str(out), "--columns", columns, *words, "--allow-no-match") == 0


def files_of(path: Path) -> dict[str, bytes]:
    paths = [path, *path.parent.iterdir()] if path.is_file() else sorted(path.rglob("*"))
    return {str(child): child.read_bytes() for child in paths if child.is_file()}


def test_entries_with_a_binary_key_are_dropped_and_redacted_from_the_command_line(tmp_path: Path) -> None:
    rows = [{"key": number.to_bytes(4, "big"), "value": b"secret"} for number in range(2000)]
    rows.append({"key": b"\xff\x00", "value": b"secret"})
    lw.write(rows, tmp_path / "a", "leveldb.db")
    out = tmp_path / "b"
    drop, redact = 'key in (x\'00000007\', {"$hex": "0000000A"})', 'key == {"$hex": "ff00"}'
    assert run("edit", str(tmp_path / "a"), "--out", str(out), "--drop", drop, "--redact", redact) == 0
    expected = {row["key"]: row["value"] for row in rows if row["key"] not in (b"\0\0\0\7", b"\0\0\0\n")}
    expected[b"\xff\x00"] = b""
    assert {row["key"]: row["value"] for row in lw.read(out).to_pylist()} == expected


# All systems


def test_in_place_with_a_backup(tmp_path: Path) -> None:
    source = partition(tmp_path / "a" / "orders-0")
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    backup = tmp_path / "backup"
    report = lw.edit(source, drop="key == user-007", in_place=True, backup=backup)
    assert secret(7) not in all_bytes(source)
    assert all((backup / name).read_bytes() == before[name] for name in before if (backup / name).exists())
    assert (backup / "00000000000000000000.log").exists()
    assert "including everything removed" in flat_text(report)
    untouched = {path.name: path.read_bytes() for path in source.iterdir()}
    lw.edit(source, drop="key == nobody", in_place=True, backup=tmp_path / "other", allow_no_match=True)
    assert {path.name: path.read_bytes() for path in source.iterdir()} == untouched


def test_dry_run_writes_nothing(tmp_path: Path) -> None:
    source = partition(tmp_path / "a" / "orders-0")
    report = lw.edit(source, drop="key == user-007", dry_run=True)
    assert "would be edited" in flat_text(report)
    assert "the same edit without dry_run writes the result" in flat_text(report)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_damaged_input_is_refused(tmp_path: Path) -> None:
    source = partition(tmp_path / "a" / "orders-0")
    log = source / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[9000] ^= 1
    log.write_bytes(data)
    for path in (source, log):
        with pytest.raises(lw.DamageError, match="Repair it first"):
            lw.edit(path, tmp_path / "b" / path.name, drop="key == user-007")
    assert not (tmp_path / "b" / "orders-0").exists()


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ({}, "nothing to change"),
        ({"drop": "kee == 1"}, "Did you mean 'key'"),
        ({"redact": "offset == 1", "columns": "offset"}, "cannot be redacted"),
        ({"redact": "offset == 1", "columns": []}, "no columns to redact"),
        ({"drop": "offset == 1", "blok": 1}, "unknown option"),
    ],
)
def test_impossible_requests_are_refused(tmp_path: Path, words: dict[str, Any], match: str) -> None:
    source = partition(tmp_path / "a" / "orders-0")
    with pytest.raises(lw.UsageError, match=match):
        lw.edit(source, tmp_path / "b" / "orders-0", **words)


def test_unknown_paths_and_kinds_are_refused(tmp_path: Path) -> None:
    source = partition(tmp_path / "a" / "orders-0")
    with pytest.raises(lw.UsageError, match="no destination for the result"):
        lw.edit(source, drop="offset == 1")
    with pytest.raises(lw.UsageError, match="cannot be edited"):
        lw.edit(source / "partition.metadata", tmp_path / "x", drop="version == 1")
    partition(tmp_path / "a" / "orders-1")
    with pytest.raises(lw.UsageError, match="one by one"):
        lw.edit(f"{tmp_path}/a/orders-*", tmp_path / "x", drop="offset == 1")
    empty = tmp_path / "c" / "orders-0"
    empty.mkdir(parents=True)
    shutil.copy(source / "partition.metadata", empty)
    with pytest.raises(lw.UsageError, match="no log"):
        lw.edit(empty, tmp_path / "x" / "orders-0", drop="offset == 1")
    (source / "00000000000000000000.log").rename(source / "00000000000000000000.log.swap")
    with pytest.raises(lw.LogwrightError):
        lw.edit(source, tmp_path / "x" / "orders-0", drop="offset == 1")


def test_edit_command_prints_how_many_records_it_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = partition(tmp_path / "a" / "orders-0", compression_type="snappy")
    out = tmp_path / "b" / "orders-0"
    assert (
        run(
            "edit",
            str(source),
            "--drop",
            "key == user-007",
            "--redact",
            "key == user-008",
            "--with-null",
            "--out",
            str(out),
        )
        == 0
    )
    assert re.search(r"edited: \d+ frames, 20 records dropped, 20 records redacted", capsys.readouterr().out)
    assert run("diff", str(source), str(out), "--json") == 3
    assert json.loads(capsys.readouterr().out)["counts"]["removed"] == 20
    assert lw.read(out, filter="key == user-008").column("value").null_count == 20
    assert run("edit", str(source), "--drop", "key == user-001", "--json", "--dry-run") == 0
    assert json.loads(capsys.readouterr().out)["cut"]
    assert run("edit", str(source), "--out", str(tmp_path / "c")) == 2
    assert (
        run(
            "edit",
            str(source),
            "--redact",
            "key == user-001",
            "--with",
            "x",
            "--out",
            str(tmp_path / "d" / "orders-0"),
        )
        == 0
    )
    assert (
        lw.read(tmp_path / "d" / "orders-0", filter="key == user-001").column("value").to_pylist()[0] == b"x"
    )
    output = capsys.readouterr().out
    assert "20 records redacted" in output
    assert "dropped" not in output


def test_standard_input_cannot_be_changed_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = partition(tmp_path / "a" / "orders-0")
    log = sorted(source.glob("*.log"))[0]
    with open(log, "rb") as stream:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
        with pytest.raises(lw.UsageError, match="local"):
            lw.edit("-", codec="kafka.log", drop="offset == 1", in_place=True, backup=tmp_path / "x")
    with open(log, "rb") as stream:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
        lw.edit("-", tmp_path / "out.log", codec="kafka.log", drop="offset == 1")
    assert lw.diff(log, tmp_path / "out.log", codec="kafka.log").counts["removed"] == 1


def test_undecodable_records_are_damage(tmp_path: Path) -> None:
    source = KAFKA["craft_gzip_bad_crc"].partition
    with pytest.raises(lw.DamageError):
        lw.edit(source, tmp_path / source.name, drop="offset == 1")


def test_preallocated_zeros_and_empty_segments(tmp_path: Path) -> None:
    source = partition(tmp_path / "a" / "orders-0")
    last = sorted(source.glob("*.log"))[-1]
    with open(last, "ab") as file:
        file.write(bytes(1000))
    report = lw.edit(source, tmp_path / "b" / "orders-0", drop="key == user-007")
    assert lw.verify(tmp_path / "b" / "orders-0").ok
    assert any(removed["why"] == "not a batch" for removed in report.cut or ())
    empty = KAFKA["craft_only_empty_segment"].partition
    lw.edit(empty, tmp_path / "c" / empty.name, drop="offset == 1", allow_no_match=True)


def test_replacement_without_redaction_is_refused(tmp_path: Path) -> None:
    source = partition(tmp_path / "users-0")
    for value in ("x", None):
        with pytest.raises(lw.UsageError, match="has no effect without redact"):
            lw.edit(source, tmp_path / "out-0", drop="offset == 1", with_=value)
