"""The verb `damage`: its output, refused operations, and repeatability."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logwright as lw
from logwright.cli import main
from logwright.codec.fault import LogwrightError
from logwright.corpora.damage import Staging
from logwright.corpora.damage_ops import OPERATIONS, parse, unescape
from logwright.corpora.expected import lines
from logwright.roundtrip import trust
from logwright.roundtrip.memory_filesystem import MemoryFileSystem
from logwright.writers.filesystem import LocalFileSystem, plain_errors, put_file

ROWS = 60
WRITING = {"batch.size": 200, "segment.bytes": 700, "topic.id": "AAAAAAAAAAAAAAAAAAAAAQ"}


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "orders-0"
    values = [f"value-{n:04}".encode() for n in range(ROWS)]
    data = pa.table(
        {
            "key": pa.array([b"k%d" % n for n in range(ROWS)], pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.array(range(ROWS), pa.timestamp("ms", "UTC")),
        }
    )
    lw.write(data, path, "kafka.partition", **WRITING)
    return path


def tree(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()
    }


def salvaged(path: Path | str) -> tuple[int, str]:
    digest, rows = hashlib.sha256(), 0
    for batch in lw.scan(path, mode="DROPMALFORMED"):
        rows += batch.num_rows
        digest.update(lines(batch))
    return rows, digest.hexdigest()


def expected_rows(result: lw.Damaged) -> tuple[int, str]:
    return result.manifest["expected"]["rows"], result.manifest["expected"]["sha256"]


def test_read_only_directory_is_copied(
    partition: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(shutil.copytree(partition, tmp_path / "orders-0"))
    source.chmod(0o555)
    create = LocalFileSystem.create

    def checked(files: LocalFileSystem, path: str) -> Any:
        assert os.stat(os.path.dirname(path)).st_mode & 0o200, "only root writes into a read-only directory"
        return create(files, path)

    monkeypatch.setattr(LocalFileSystem, "create", checked)
    lw.damage(source, tmp_path / "out", op="flip:at=100,bit=1")
    assert (tmp_path / "out" / "orders-0").stat().st_mode & 0o777 == 0o555
    for folder in (source, tmp_path / "out" / "orders-0"):
        folder.chmod(0o755)


def test_damage_writes_a_copy_and_a_manifest(partition: Path, tmp_path: Path) -> None:
    before = tree(partition)
    damage = lw.damage(partition, tmp_path / "out", "flip:frame=1,at=70,bit=3")
    out = Path(damage.path)
    assert out == tmp_path / "out" / "orders-0"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["damage.json", "orders-0"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]  # nothing is left of the staging
    assert tree(partition) == before
    record = json.loads(Path(damage.manifest_path).read_text())
    assert record == damage.manifest
    last = max(path.name for path in partition.glob("*.log"))
    assert (record["changed"], record["removed"], record["added"]) == ([last], [], [])
    assert record["input"]["codec"] == "kafka.partition"
    for part, files in (("input", before), ("output", tree(out))):
        assert {row["name"]: (row["size"], row["sha256"]) for row in record[part]["files"]} == {
            name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()
        }
    (done,) = record["operations"]
    assert (done["op"], done["file"], done["frame"], done["at"], done["bit"]) == ("flip", last, 1, 70, 3)
    differ = [
        i for i, (a, b) in enumerate(zip(before[last], (out / last).read_bytes(), strict=True)) if a != b
    ]
    assert differ == [done["found"]["offset"]]
    assert before[last][differ[0]] ^ (out / last).read_bytes()[differ[0]] == 8
    assert not record["verdict"]["verify"]["ok"]
    (system,) = record["verdict"]["system"]
    report = lw.verify(out, as_system=True, clean=False)
    assert system["unclean"] == report["system"]
    assert system["clean"] == lw.verify(out, as_system=True, clean=True)["system"]


DAMAGE = {
    "flip": ["flip:frame=1,at=70"],
    "drop a frame": ["drop:file=first,frame=1"],
    "drop bytes": ["drop:file=first,at=100,length=30"],
    "insert": ["insert:file=first,frame=2,text=garbage"],
    "zero": ["zero:file=first,frame=1"],
    "cut": ["cut:at=-10"],
    "set": ["set:file=first,frame=1,field=records_count,add=1"],
    "several": ["flip:file=first,frame=0,at=70", "flip:frame=1,at=70", "insert:at=end,random=50"],
    "a segment": ["remove:file=00000000000000000000.*"],
    "renamed": ["rename:file=00000000000000000000.log,to=other.txt"],
    "indexes": ["remove:file=*.index", "write:file=*.timeindex,at=0,hex=ff"],
    "twice": ["duplicate:frame=0"],
}


@pytest.mark.alike
@pytest.mark.parametrize("name", DAMAGE)
def test_expected_rows_equal_salvage(name: str, partition: Path, tmp_path: Path) -> None:
    damage = lw.damage(partition, tmp_path / "out", DAMAGE[name])
    assert expected_rows(damage) == salvaged(damage.path)
    expected = damage.manifest["expected"]
    assert sum(expected["files"].values()) == expected["rows"] <= ROWS


def test_single_file_is_damaged_by_frame_and_by_byte(partition: Path, tmp_path: Path) -> None:
    log = min(partition.glob("*.log"))
    damage = lw.damage(log, tmp_path / "out", ["flip:frame=0,at=80", "insert:at=end,zeros=9"])
    assert Path(damage.path) == tmp_path / "out" / log.name
    assert len(Path(damage.path).read_bytes()) == log.stat().st_size + 9
    assert expected_rows(damage) == salvaged(damage.path)
    second = lw.damage(log, tmp_path / "again", apply=damage.manifest_path)
    assert Path(second.path).read_bytes() == Path(damage.path).read_bytes()
    with pytest.raises(lw.UsageError, match="the only file is"):
        lw.damage(log, tmp_path / "more", "remove:file=x")


def test_unrecognised_file_is_damaged_by_byte_only(tmp_path: Path) -> None:
    (tmp_path / "some.bin").write_bytes(b"0123456789")
    damage = lw.damage(
        tmp_path / "some.bin", tmp_path / "out", ["flip:at=0", "drop:at=2,length=2", "write:at=-1,text=x"]
    )
    assert Path(damage.path).read_bytes() == b"1145678x"
    assert damage.manifest["verdict"]["verify"] is None
    for op in ("flip:frame=0", "set:frame=0,field=a,value=1"):
        with pytest.raises(lw.UsageError, match="unrecognised file format"):
            lw.damage(tmp_path / "some.bin", tmp_path / "more", op)


def test_files_of_an_unrecognised_directory_are_changed_by_name(tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "a").write_bytes(b"abc")
    ops = [
        "drop:file=deep/a,at=0",
        "create:file=new/one,zeros=3",
        "copy:file=deep/a,to=b",
        "rename:file=b,to=c",
    ]
    damage = lw.damage(tmp_path / "in", tmp_path / "out", ops)
    assert tree(Path(damage.path)) == {"deep/a": b"bc", "new/one": b"\0\0\0", "c": b"bc"}
    with pytest.raises(lw.UsageError, match="Name a file"):
        lw.damage(tmp_path / "in", tmp_path / "more", "flip:at=0")


def test_positions_refer_to_the_current_content(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abcdef")
    ops = [
        "insert:at=0,text=__", "duplicate:at=2,length=2,times=2", "zero:at=-1", "cut:at=-1",
        {"op": "insert", "at": "end", "hex": "21"}, 'insert:at=1,text="\\x2c,\\n"',
    ]  # fmt: skip
    damage = lw.damage(tmp_path / "x", tmp_path / "out", ops)
    assert Path(damage.path).read_bytes() == b"_,,\n_abababcde!"


# Random damage


def test_same_seed_gives_the_same_damage(partition: Path, tmp_path: Path) -> None:
    trees = {}
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        damage = lw.damage(partition, tmp_path / name, seed=seed, count=6)
        trees[name] = tree(tmp_path / name)
        assert len(damage.operations) == 6
    assert trees["a"] == trees["b"] != trees["c"]
    second = lw.damage(partition, tmp_path / "d", apply=tmp_path / "a" / "damage.json")
    assert tree(tmp_path / "d") == trees["a"]
    assert second.manifest["random"] == {"seed": 7, "count": 6}


def test_random_choices_are_platform_independent() -> None:
    """Pinned: corpora must not change with the version of Python."""
    from logwright.corpora.damage_apply import Surgeon
    from logwright.corpora.damage_image import Tree
    from logwright.corpora.damage_random import at_random
    from logwright.readers.source import MemorySource

    tree = Tree("x", "x", {"": 1000}, lambda name: MemorySource(bytes(1000)), True)
    done = list(at_random(Surgeon(tree), 3, 4))
    assert [
        {key: value for key, value in item.items() if key not in ("found", "hex")} for item in done
    ] == PINNED


PINNED: list[dict[str, Any]] = [
    {"op": "zero", "at": 309, "length": 48},
    {"op": "drop", "at": 46, "length": 2},
    {"op": "cut", "at": 804},
    {"op": "drop", "at": 273, "length": 2},
]


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(6, 80))]
)
def test_randomly_damaged_directories_are_read(seed: int, partition: Path, tmp_path: Path) -> None:
    """Reading does not crash, and the damage can be repeated."""
    damage = lw.damage(partition, tmp_path / "out", seed=seed, count=5)
    rows, _ = salvaged(damage.path)
    assert rows >= 0
    lw.damage(partition, tmp_path / "again", apply=damage.manifest)
    assert tree(tmp_path / "again") == tree(tmp_path / "out")


def test_random_damage_of_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(lw.UsageError, match="nothing is left"):
        lw.damage(tmp_path / "empty", tmp_path / "out", count=1)


# Refused operations

WRONG = {
    "flop:at=1": "Did you mean 'flip'",
    "flip": "no location",
    "flip:at=1,bti=3": "Did you mean 'bit'",
    "flip:at=1,bit=9": "bits 0 to 7",
    "flip:at=1,mask=256": "mask is 1 to 255",
    "flip:at=1,bit=1,mask=2": "bit and mask exclude each other",
    "flip:at=x": "not valid",
    "flip:at=1,at=2": "given twice",
    "flip:at": "needs a value",
    "flip:at=1,reseal=3": "takes no value",
    "flip:at=1;bit": "not valid",
    "flip:=1": "cannot parse",
    "flip:frame=1,frames=1..2": "frame and frames exclude each other",
    "flip:frames=1": "expected A..B",
    "set:frames=1..2,field=crc,value=1": "no parameter 'frames'",
    "zero:frames=0..1,field=crc": "in one frame",
    "zero:frames=0..1,record=0": "in one frame",
    "zero:frames=0..1,reseal": "reseal works on one frame",
    "zero:at=1,length=-1": "negative",
    "duplicate:frame=0,times=0": "below 1",
    "insert:at=1": "one of hex, text",
    "insert:at=1,hex=0": "not valid",
    "insert:at=1,random=-1": "negative",
    "insert:at=1,random=2m": "the limit is",
    "reorder:file=first": "frames=A..B",
    "set:frame=1,value=3": "field=",
    "set:frame=1,field=crc": "one of value",
    "rename:file=x": "to=",
    "remove": "file=",
    "flip:at=1000000": "no byte 1000000: there are",
    "zero:at=1,length=100000": "exceed the",
    "flip:frame=77": "no frame 77",
    "zero:frames=1..0": "comes after",
    "reorder:frames=1..0": "comes after",
    "reorder:frames=0..1,order=0/0": "each of the frames",
    "flip:file=nope,at=0": "no file 'nope'",
    "flip:file=nope*,at=0": "no file",
    "copy:file=*.log,to=x": "files match",
    "copy:file=partition.metadata,to=../x": "is not a valid file name",
    "create:file=partition.metadata,text=a": "already exists",
    "create:file=partition.metadata/x,text=a": "is not a valid file name",
    "set:field=crc,value=1": "pass frame=",
    "set:frame=0,field=cr,value=1": "Did you mean 'crc'",
    "set:frame=0,field=a-b,value=1": "is not a name like",
    "set:frame=0,field=crc,value=1,reseal": "checksum",
    "set:frame=0,field=crc,value=abc": "is a number",
    "set:frame=0,field=crc,value=-1": "does not fit",
    "set:frame=0,recrod=0,field=key,text=a": "Did you mean 'record'",
    "set:frame=0,record=99,field=key,text=a": "no item 99",
    "set:frame=0,record=0,field=key,add=1": "is not a number",
    "set:frame=0,field=records,value=1": "consists of several fields",
    "set:frame=0,field=crc,null": "does not fit",
    "set:file=partition.metadata,field=version,value=1": "has no named fields",
    "insert:frame=0,field=crc,at=0,zeros=1g": "the limit for changes",
    "duplicate:frame=0,field=crc,times=1000000000": "would exceed",
}  # fmt: skip


@pytest.mark.parametrize("op", WRONG)
def test_invalid_operations_are_refused(op: str, partition: Path, tmp_path: Path) -> None:
    with pytest.raises(lw.UsageError) as error:
        lw.damage(partition, tmp_path / "out", op)
    assert WRONG[op] in str(error.value)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_invalid_arguments_are_refused(partition: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    with pytest.raises(lw.ExistsError, match="not empty"):
        lw.damage(partition, tmp_path / "full", "flip:at=1")
    with pytest.raises(lw.ExistsError, match="exists"):
        lw.damage(partition, tmp_path / "full" / "x", "flip:at=1")
    with pytest.raises(lw.UsageError, match="cannot be inside"):
        lw.damage(partition, partition / "out", "flip:at=1")
    with pytest.raises(lw.UsageError, match="no operation"):
        lw.damage(partition, tmp_path / "out")
    with pytest.raises(lw.UsageError, match="count is -1"):
        lw.damage(partition, tmp_path / "out", count=-1)
    with pytest.raises(lw.UsageError, match="only local"):
        lw.damage("s3://bucket/x", tmp_path / "out", "flip:at=1")
    with pytest.raises(lw.UsageError, match="text or a mapping"):
        lw.damage(partition, tmp_path / "out", [3])  # type: ignore[list-item]
    with pytest.raises(lw.NotFoundError):
        lw.damage(partition / "nope", tmp_path / "out", "flip:at=1")
    with pytest.raises(lw.UsageError):
        lw.damage(partition, tmp_path / "out", "flip:at=1", codec="kafka.log")
    with pytest.raises(lw.UsageError):
        lw.damage(min(partition.glob("*.log")), tmp_path / "out", "flip:at=1", codec="kafka.partition")
    (tmp_path / "empty").mkdir()
    damage = lw.damage(partition, tmp_path / "empty", "flip:at=1")  # an empty directory is taken
    assert Path(damage.path).is_dir()


def test_manifest_applies_to_the_same_files_only(partition: Path, tmp_path: Path) -> None:
    damage = lw.damage(partition, tmp_path / "out", "flip:frame=0,at=80")
    other = Path(lw.damage(partition, tmp_path / "other", "flip:frame=1,at=80").path)
    with pytest.raises(lw.UsageError, match=r"not the files of damage.json: 0.*\.log differs"):
        lw.damage(other, tmp_path / "x", apply=damage.manifest_path)
    more = Path(lw.damage(partition, tmp_path / "more", "create:file=z,text=z").path)
    with pytest.raises(lw.UsageError, match="z was not there"):
        lw.damage(more, tmp_path / "x", apply=damage.manifest_path)
    with pytest.raises(lw.UsageError, match="exclude each other"):
        lw.damage(partition, tmp_path / "x", "flip:at=1", apply=damage.manifest_path)
    record = json.loads(Path(damage.manifest_path).read_text())
    record["output"]["files"][1]["sha256"] = "0" * 64
    with pytest.raises(LogwrightError, match="differs from the result"):
        lw.damage(partition, tmp_path / "x", apply=record)
    assert not (tmp_path / "x").exists()
    for text in ("no json", "{}", '{"damage": 2}', '{"damage": 1}', "[]"):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(lw.UsageError, match=r"damage\.json"):
            lw.damage(partition, tmp_path / "x", apply=tmp_path / "bad.json")


def test_operations_round_trip_through_text() -> None:
    for text in (
        "flip:at=1,bit=3",
        "set:frame=3,record=0,field=key,text=a,reseal",
        "reorder:frames=0..2,order=2/1/0",
    ):
        item = parse(text)
        assert parse(json.loads(json.dumps(item.to_dict()))) == item
    assert set(OPERATIONS) >= {"flip", "zero", "cut", "insert", "drop", "duplicate", "reorder", "set"}
    assert parse("truncate:at=3").name == "cut"
    assert unescape("a\\n\\x00\\\\ü") == b"a\n\0\\" + "ü".encode()


# Whole or not at all


def put(files: MemoryFileSystem, out: str = "/data/out") -> None:
    with Staging(files, out) as staging:
        files.mkdir(f"{staging.path}/copy")
        put_file(files, f"{staging.path}/copy/log", b"bytes")
        files.sync_directory(f"{staging.path}/copy")
        put_file(files, f"{staging.path}/damage.json", b"{}")
        staging.commit()


WHOLE = {"data/out/copy/log": b"bytes", "data/out/damage.json": b"{}"}


def there(files: MemoryFileSystem) -> dict[str, bytes]:
    return {path: data for path, data in files.tree().items() if data is not None}


def visible(files: MemoryFileSystem) -> dict[str, bytes]:
    return {path: data for path, data in there(files).items() if path.startswith("data/out")}


@pytest.mark.parametrize("above", [True, False])
def test_damaged_copy_is_complete_or_absent_after_any_failure(above: bool) -> None:
    """After any failed operation, interruption or crash the result is complete or absent, and the next run takes
    away what a killed one left."""
    start = MemoryFileSystem()
    if above:
        start.make("/data/out")  # an empty directory is taken

    def failed(files: MemoryFileSystem, error: BaseException | None, text: str) -> None:
        assert visible(files) in ({}, WHOLE), text
        if error is None:
            assert visible(files) == WHOLE, text
        crashed(files, text)

    def crashed(files: MemoryFileSystem, text: str) -> None:
        assert visible(files) in ({}, WHOLE), text
        if not visible(files):
            put(files)
        assert visible(files) == WHOLE, text
        put(files, "/data/other")
        left = {path for path in there(files) if "/." in path and ".other." in path}
        assert not left, text

    def command(files: MemoryFileSystem) -> None:
        with plain_errors("/data/out"):
            put(files)

    assert trust.every_operation(start, command, failed).failures > 20
    assert trust.every_crash(start, command, crashed).crashes > 20


def test_disk_error_while_reading_back_is_not_recorded_as_damage(
    partition: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preadv = os.preadv

    def failing(fd: int, *rest: Any) -> int:
        if ".tmp/" in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return preadv(fd, *rest)

    monkeypatch.setattr(os, "preadv", failing)
    with pytest.raises(lw.StorageError, match="the copy cannot be read back"):
        lw.damage(partition, tmp_path / "out", "flip:at=1")
    assert not (tmp_path / "out").exists()


def test_leftovers_of_a_killed_run_are_removed(partition: Path, tmp_path: Path) -> None:
    token = "0123456789abcdef" * 2
    left = tmp_path / f".out.{token}.tmp"
    (left / "orders-0").mkdir(parents=True)
    (left / "orders-0" / "x").write_text("x")
    (tmp_path / f".out.{token}.tmp.lock").write_text("")
    (tmp_path / ".out.other").write_text("not ours")
    lw.damage(partition, tmp_path / "out", "flip:at=1")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.other", "out"]


# The command line


def cli(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


def test_damage_command_reports_its_operations(
    partition: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["damage", str(partition), "--op", "flip:frame=0,at=80", "--op", "cut:at=-1", "--out"]
    assert cli(*words, str(tmp_path / "a")) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "2 operations" in err
    assert "verify finds" in err
    assert cli(*words, str(tmp_path / "b"), "--json") == 0
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "a" / "damage.json").read_text())
    assert (
        cli(
            "damage",
            str(partition),
            "--apply",
            str(tmp_path / "a" / "damage.json"),
            "-o",
            str(tmp_path / "c"),
        )
        == 0
    )
    assert tree(tmp_path / "a") == tree(tmp_path / "b") == tree(tmp_path / "c")
    assert cli("damage", str(partition), "--op", "flop", "-o", str(tmp_path / "d")) == 2
    assert cli("damage", str(partition), "--op", "flip:at=1") == 2
    assert cli("damage", str(partition), "--seed", "3", "--count", "2", "-o", str(tmp_path / "e")) == 0
    assert cli("damage", str(tmp_path / "nope"), "--op", "flip:at=1", "-o", str(tmp_path / "f")) == 1


def test_configuration_file_is_not_damaged_in_place_of_its_directories(tmp_path: Path) -> None:
    """The other verbs take it for the directories that it names."""
    lw.write([{"value": b"v"}], tmp_path / "logs" / "orders-0", "kafka.partition")
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={tmp_path / 'logs'}\n")
    with pytest.raises(lw.UsageError, match="stands for the directories") as error:
        lw.damage(config, tmp_path / "out", "flip:at=3,bit=1")
    assert str(tmp_path / "logs") in str(error.value)
    assert not (tmp_path / "out").exists()


def test_other_json_is_refused_as_a_record_of_damage(tmp_path: Path) -> None:
    lw.generate("kafka.partition", tmp_path / "orders-0", rows=3)
    with pytest.raises(lw.UsageError, match=r"it has no 'damage'\. Pass the damage\.json of an earlier"):
        lw.damage(tmp_path / "orders-0", tmp_path / "out", apply={"other": 1})
    assert not (tmp_path / "out").exists()
