"""The verb `roundtrip`: the laws on a user's files, and the report of a broken law."""

from __future__ import annotations

import io
import json
import struct
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import logwright as lw
from logwright.cli import main
from logwright.codec import registry
from logwright.codec.fault import UsageError
from logwright.corpora import cases
from logwright.roundtrip import check, laws
from logwright.roundtrip.specimen import Specimen


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    path = tmp_path / "orders-0"
    values = [b"value-%04d" % n for n in range(300)]
    rows = pa.table(
        {"value": pa.array(values, pa.binary()), "timestamp": pa.array(range(300), pa.timestamp("ms", "UTC"))}
    )
    lw.write(rows, path, "kafka.partition", **{"batch.size": 500, "segment.bytes": 4000})
    return path


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_sound_directory_keeps_every_law(partition: Path) -> None:
    (partition / "README").write_text("hello")
    actual = lw.roundtrip(partition)
    assert actual.ok
    assert actual.holds
    assert not actual.damaged
    assert not actual.unchecked
    logs = [file for file in actual.files if file.codec == "kafka.log"]
    assert len(logs) > 1
    for file in actual.files:
        assert [outcome.law for outcome in file.outcomes] == list(check.LAWS)
        assert all(outcome.bytes == file.bytes == Path(file.path).stat().st_size for outcome in file.outcomes)
    assert actual.notes == (f"{partition}: skipped 1 unrecognised file",)
    assert len(actual.text().splitlines()) == 4 * len(actual.files) + 1
    assert "BROKEN" not in str(actual)


def test_roundtrip_is_a_verb_and_a_package(partition: Path) -> None:
    log = min(partition.glob("*.log"))
    assert lw.roundtrip(log, law="decode_encode").ok
    import logwright.roundtrip.laws

    assert logwright.roundtrip(log, law=["decode_encode"]).ok  # type: ignore[operator]
    from logwright.roundtrip.check import roundtrip

    assert roundtrip(log, law="any_split,decode_encode").ok
    assert lw.roundtrip.laws is laws  # type: ignore[attr-defined]


def test_damaged_files_keep_the_laws(partition: Path) -> None:
    log = sorted(partition.glob("*.log"))[1]
    flip(log, 100)
    actual = lw.roundtrip(partition, jobs=2)
    assert actual.holds
    assert actual.damaged
    assert not actual.ok
    (bad,) = [file for file in actual.files if file.damaged]
    assert bad.path == str(log)
    assert bad.faults >= 1
    assert f"{log}  DAMAGED" in actual.text()
    assert lw.roundtrip(partition).to_dict() == actual.to_dict()


def test_table_without_its_index(tmp_path: Path) -> None:
    path = tmp_path / "000005.ldb"
    rows = {"key": [b"k%03d" % n for n in range(200)], "value": [b"v" * 30] * 200}
    lw.write(pa.table(rows), path, "leveldb.table", block_size=500, compression="none")
    assert lw.roundtrip(path).ok
    data = bytearray(path.read_bytes())
    data[-48:-44] = b"\x05\x05\x06\x06"
    path.write_bytes(bytes(data))
    actual = lw.roundtrip(path)
    assert [(outcome.law, outcome.holds) for outcome in actual.files[0].outcomes] == [
        ("decode_encode", True),
        ("encode_without_payloads", True),
        ("any_split", True),
        ("kernel_equals_description", None),
    ]
    assert "not checked: the index does not identify the data blocks" in actual.text()
    assert actual.damaged


def test_output_of_several_files_is_aligned(partition: Path) -> None:
    lines = [line for line in lw.roundtrip(partition).text().splitlines() if "holds" in line]
    assert len({len(line.split()[0]) for line in lines}) > 1
    assert len({line.index("holds (") for line in lines}) == 1


def test_laws_are_chosen_by_name(partition: Path) -> None:
    log = min(partition.glob("*.log"))
    assert [outcome.law for outcome in lw.roundtrip(log, law=["any_split"]).files[0].outcomes] == [
        "any_split"
    ]
    with pytest.raises(UsageError, match="Did you mean 'any_split'"):
        lw.roundtrip(log, law="any_spilt")
    with pytest.raises(UsageError, match="Valid values: decode_encode"):
        lw.roundtrip(log, law="x")
    with pytest.raises(lw.NotFoundError):
        lw.roundtrip(partition / "nope")


def test_large_files_are_checked_in_ranges(partition: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each law on each range, the description on the first range only unless requested."""
    log = min(partition.glob("*.log"))
    size = log.stat().st_size
    monkeypatch.setattr(check, "HELD", 1500)
    monkeypatch.setattr(check, "DESCRIBED", 700)
    seen: list[tuple[str, int]] = []

    def counted(name: str) -> None:
        law = check.LAWS[name]

        def count(specimen: Specimen) -> laws.Verdict:
            seen.append((name, len(specimen.data)))
            return law(specimen)

        monkeypatch.setitem(check.LAWS, name, count)  # type: ignore[arg-type]

    for name in list(check.LAWS):
        counted(name)
    (file,) = lw.roundtrip(log).files
    outcomes = {outcome.law: outcome for outcome in file.outcomes}
    assert all(item.holds for item in outcomes.values())
    assert outcomes["decode_encode"].bytes == size == sum(n for name, n in seen if name == "decode_encode")
    assert len([1 for name, _ in seen if name == "decode_encode"]) > 2
    assert 0 < outcomes["kernel_equals_description"].bytes <= 700
    assert (
        f"the first {outcomes['kernel_equals_description'].bytes:,} of {size:,} bytes"
        in lw.roundtrip(log).text()
    )
    (file,) = lw.roundtrip(log, law="kernel_equals_description").files
    assert file.outcomes[0].bytes == size


def test_table_is_described_as_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index at the end of a table says what its blocks are, so a large table is never cut."""
    monkeypatch.setattr(check, "HELD", 3000)
    monkeypatch.setattr(check, "DESCRIBED", 2000)
    rows = [{"key": b"key%05d" % n, "value": b"%05d" % (n * 7919 % 99991) * 5} for n in range(2000)]
    for compression in ("none", "snappy", "zlib_raw"):
        path = tmp_path / compression
        lw.write(rows, str(path), "leveldb.db", compression=compression, block_size=512)
        (table,) = path.glob("*.ldb")
        actual = lw.roundtrip(table)
        assert actual.ok, actual.text()
        outcomes = {outcome.law: outcome for outcome in actual.files[0].outcomes}
        assert 0 < outcomes["kernel_equals_description"].bytes <= 2000 < table.stat().st_size


def test_snapshot_is_checked_in_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A range of nodes alone is not damage; nodes after damage are described by themselves."""
    monkeypatch.setattr(check, "HELD", 500)
    path = tmp_path / "snapshot.16"
    path.write_bytes((cases.cases("zookeeper")["dmg_base"].path / "version-2" / path.name).read_bytes())
    actual = lw.roundtrip(path, law=list(check.LAWS))
    assert actual.ok
    assert {outcome.bytes for outcome in actual.files[0].outcomes} == {path.stat().st_size}
    data = bytearray(path.read_bytes())
    at = data.index(b"/zookeeper") - 4
    data[at : at + 4] = b"\xff" * 4
    path.write_bytes(data)
    actual = lw.roundtrip(path, law=list(check.LAWS))
    assert (actual.holds, actual.damaged) == (True, True)
    monkeypatch.undo()
    assert (lw.roundtrip(path).holds, lw.roundtrip(path).damaged) == (True, True)


def test_broken_law_is_reported(partition: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = min(partition.glob("*.log"))
    monkeypatch.setattr(check, "HELD", 1500)
    first = len(lw.roundtrip(log, law="decode_encode").files) and log.read_bytes()[:1]

    def broken(specimen: Specimen) -> laws.Verdict:
        if specimen.data[:1] == first and specimen.data[7] == 0:
            return laws.Verdict("decode_encode", "x", 1)
        return laws.Verdict("decode_encode", "x", 1, "byte 3: expected 00, found 01", 3)

    def crash(specimen: Specimen) -> laws.Verdict:
        raise IndexError("oh")

    def refused(specimen: Specimen) -> laws.Verdict:
        raise lw.UnsupportedError("not this one")

    monkeypatch.setitem(check.LAWS, "decode_encode", broken)  # type: ignore[arg-type]
    monkeypatch.setitem(check.LAWS, "encode_without_payloads", crash)  # type: ignore[arg-type]
    monkeypatch.setitem(check.LAWS, "any_split", refused)  # type: ignore[arg-type]
    actual = lw.roundtrip(log)
    outcomes = {outcome.law: outcome for outcome in actual.files[0].outcomes}
    assert outcomes["decode_encode"].holds is False
    assert outcomes["decode_encode"].difference.startswith("from byte ")
    assert outcomes["encode_without_payloads"].holds is False
    assert outcomes["encode_without_payloads"].difference == "IndexError: oh"
    assert outcomes["any_split"].holds is None
    assert actual.unchecked
    assert not actual.holds
    assert not actual.ok
    text = actual.text()
    assert "BROKEN: from byte" in text
    assert "not checked: not this one" in text


def cli(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


def test_roundtrip_on_the_command_line(
    partition: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("roundtrip", str(partition)) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("holds") == 4 * len(lw.roundtrip(partition).files)
    flip(min(partition.glob("*.log")), 90)
    assert (
        cli("roundtrip", str(partition), "--json", "--law", "any_split", "--law", "decode_encode", "-j", "2")
        == 3
    )
    loaded = json.loads(capsys.readouterr().out)
    assert (loaded["ok"], loaded["holds"], loaded["damaged"]) == (False, True, True)
    assert {law["law"] for law in loaded["files"][0]["laws"]} == {"decode_encode", "any_split"}
    assert cli("roundtrip", str(partition), "--law", "nope") == 2
    assert cli("roundtrip", str(tmp_path / "nope")) == 1
    assert cli("roundtrip", "--law", "any_split") == 2
    assert cli("roundtrip", str(partition), str(partition / "partition.metadata")) == 3
    assert cli("roundtrip", "--colour", "red") == 2


def test_unreadable_paths_are_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A format of an old version is recognised and refused by name: status 1."""
    path = tmp_path / "version-1"
    path.mkdir()
    txn = struct.pack(">qiqqii", 7, 1, 1, 1_200_000_000_000, -10, 30000)
    (path / "log.1").write_bytes(struct.pack(">i", len(txn)) + txn + b"B")
    assert cli("roundtrip", str(path)) == 1
    assert "was not checked" in capsys.readouterr().err


def test_log_on_standard_input_round_trips(partition: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = min(partition.glob("*.log"))

    class Stdin:
        buffer = io.BytesIO(log.read_bytes())

    monkeypatch.setattr(sys, "stdin", Stdin)
    actual = lw.roundtrip("-", "kafka.log")
    assert actual.ok
    assert actual.files[0].bytes == log.stat().st_size


def test_small_file_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "CURRENT"
    path.write_bytes(b"MANIFEST-000002\n")
    monkeypatch.setattr(registry.get("leveldb.current"), "largest", 8)
    (file,) = lw.roundtrip(path).files
    assert "are small" in file.error
    assert lw.roundtrip(path).unchecked
