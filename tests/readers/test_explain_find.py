"""Finding what is asked for: a byte, a byte of what is packed, a row, a fault; in a file or in a directory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from explanations import all_nodes, check_covers_file, check_nodes_tile, nodes_named

import logwright as lw
from logwright.codec import registry
from logwright.codec.explain import Node, Space
from logwright.codec.fault import Fault, Kind
from logwright.codec.frames.walk import Hole, Stretch, Walk
from logwright.codec.kafka.formats.log.layout import RECORD, RECORD_BATCH
from logwright.codec.leveldb.formats.log.layout import WRITE_BATCH
from logwright.codec.leveldb.formats.records.layout import BLOCK
from logwright.codec.leveldb.formats.records.layout import RECORD as PHYSICAL
from logwright.corpora.cases import cases
from logwright.readers.explain import ExplainOptions, _Opened, _place, address, spell
from logwright.readers.resolve import FileTarget, resolve

KAFKA, LEVELDB = cases("kafka"), cases("leveldb")
PARTITION = KAFKA["v2_gzip_aiokafka"].partition
SEGMENT = PARTITION / "00000000000000000000.log"
DATABASE = LEVELDB["tables_snappy"].path / "db"


# Places


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (5, (5,)),
        ("5", (5,)),
        ("0x4600000", (0x4600000,)),
        ("64k", (65536,)),
        ("1_000", (1000,)),
        ("@61+5", (61, 5)),
        ("@0x3d+0x5", (61, 5)),
        ("@61@7+5", (61, 7, 5)),
    ],
)
def test_places(text: int | str, places: tuple[int, ...]) -> None:
    assert address(text) == places
    assert address(spell(places)) == places


@pytest.mark.parametrize("text", ["", "x", "-1", -1, "@61", "61+5", "@+5", "1.5", "+5", "@61+", "0x"])
def test_what_is_no_place(text: int | str) -> None:
    with pytest.raises(lw.UsageError, match="no place in a file"):
        lw.explain(SEGMENT, at=text)


def test_a_byte() -> None:
    found = lw.explain(SEGMENT, at=21)
    assert [(piece.start, piece.stop, piece.frame) for piece in found.pieces] == [(0, 971, True)]
    assert found.found.focus == (21,)
    line = next(line for line in found.text().splitlines() if line.startswith("►"))
    assert "attributes" in line
    assert len(lw.explain(SEGMENT, at=0, limit=2).pieces) == 2
    with pytest.raises(lw.UsageError, match="there is no byte 2100: the file has 2100"):
        lw.explain(SEGMENT, at=2100)


def test_a_byte_of_what_is_packed() -> None:
    found = lw.explain(SEGMENT, at="@61+620", items=1)
    (line,) = [line for line in found.text().splitlines() if line.startswith("►")]
    assert "+000026c" in line
    assert "headers" in line or "count" in line
    assert "[17]" in {one.name for one in all_nodes(found)}


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("@61+99999", "there is no byte 99999 in what is packed at 61: that has "),
        ("@62+5", "nothing is packed at byte 62"),
        ("@61@5+1", "nothing is packed at byte 5"),
        ("@17@0+1", "nothing is packed at byte 17"),
    ],
)
def test_a_byte_that_is_not_in_what_is_packed(place: str, said: str) -> None:
    with pytest.raises(lw.UsageError, match=said):
        lw.explain(SEGMENT, at=place)


def test_a_byte_of_what_can_not_be_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "000005.ldb"
    data = bytearray((DATABASE / "000005.ldb").read_bytes())
    data[:5] = b"\xff" * 5
    path.write_bytes(data)
    (piece,) = lw.explain(path, at="@0+7").pieces
    assert (piece.start, piece.fault is not None) == (0, True)


def test_a_row_of_a_compressed_batch() -> None:
    found = lw.explain(SEGMENT, where={"offset": 17}, items=1)
    (row,) = [one for one in all_nodes(found) if one.row == 17]
    assert nodes_named(found, "offset_delta")[-1].meaning != ""
    assert next(one for one in row.children if one.name == "offset_delta").meaning == "offset 17"
    assert found.found.focus == (61, row.start)
    assert found.pieces[0].row == 17


@pytest.mark.parametrize("where", ["offset=40", "offset == 40", {"offset": "40"}, [("offset", "=", 40)]])
def test_rows_are_asked_for_in_many_ways(where: object) -> None:
    found = lw.explain(PARTITION, where=where)
    (piece,) = found.pieces
    assert found.path.endswith(".log")
    (row,) = [one for one in all_nodes(found) if one.row == piece.row]
    assert next(one for one in row.children if one.name == "offset_delta").meaning == "offset 40"


def test_several_rows() -> None:
    table = lw.read(SEGMENT)
    key = table["key"].to_pylist()[3]
    there = [i for i, one in enumerate(table["key"].to_pylist()) if one == key]
    found = lw.explain(SEGMENT, where={"key": key})
    assert len(found.pieces) == len(there) > 1
    first = lw.explain(SEGMENT, where={"key": key}, limit=1)
    assert len(first.pieces) == 1
    assert first.found.notes == ["there are more such rows: say limit= to see them"]


def test_a_row_that_there_is_not() -> None:
    with pytest.raises(lw.NotFoundError, match="no row with offset=4711"):
        lw.explain(SEGMENT, where={"offset": 4711})
    with pytest.raises(lw.NotFoundError, match="no row with offset=4711"):
        lw.explain(PARTITION, where="offset=4711")
    with pytest.raises(lw.UsageError, match="no column"):
        lw.explain(SEGMENT, where={"offse": 1})
    with pytest.raises(lw.UsageError, match="where is empty"):
        lw.explain(SEGMENT, where="")


def test_rows_are_found_in_the_segment_that_has_them(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    rows = [{"key": b"k%d" % i, "value": bytes(200)} for i in range(300)]
    lw.write(rows, path, "kafka.partition", segment_bytes=4096, batch_size=1024)
    assert len(list(path.glob("*.log"))) > 5
    for offset in (0, 150, 299):
        found = lw.explain(path, where={"offset": offset})
        batch = RECORD_BATCH.unpack(found.pieces[0].data)[0]
        assert batch["base_offset"] <= offset <= batch["base_offset"] + batch["last_offset_delta"]
        assert int(Path(found.path).stem) <= offset
    assert "files of" in lw.explain(path).found.notes[0]
    assert found.found.notes == [], "the names of the segments say that no other can have it"
    assert "were not looked at" in lw.explain(path, where={"key": b"k0"}).found.notes[0]


def test_a_row_among_many_frames(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    lw.write([{"key": b"k%d" % i, "value": b"v"} for i in range(500)], path, "kafka.log", batch_size=100)
    for offset in (0, 250, 499):
        found = lw.explain(path, where={"key": b"k%d" % offset})
        (row,) = [one for one in all_nodes(found) if one.row == found.pieces[0].row]
        assert next(one for one in row.children if one.name == "key").value == b"k%d" % offset
        assert (
            RECORD.unpack(found.pieces[0].data, row.start - found.pieces[0].start)[0]["key"]
            == b"k%d" % offset
        )


def test_keys_of_a_database() -> None:
    rows = lw.read(DATABASE, columns="*").to_pylist()
    for row in (rows[0], rows[len(rows) // 2], rows[-1]):
        found = lw.explain(DATABASE, where={"key": row["key"]})
        said = [one.meaning for one in all_nodes(found) if one.row == found.pieces[0].row]
        assert f"{row['key'].decode()}, sequence {row['sequence']}, {row['type']}" in said


def test_tables_of_entries() -> None:
    path = next(PARTITION.parent.parent.parent.glob("*/data/*/*.index"), None)
    for path in sorted(PARTITION.parent.parent.parent.glob("v2_rolled_4096/data/*/*.index")):
        rows = lw.read(path).to_pylist()
        if rows:
            break
    found = lw.explain(path, where={"offset": rows[-1]["offset"]})
    (entry,) = found.pieces[0].nodes
    assert entry.children[0].meaning == f"offset {rows[-1]['offset']}"
    assert entry.row == 0


# Nothing in particular


def test_a_small_file_as_a_whole_and_the_first_frames() -> None:
    check_covers_file(lw.explain(SEGMENT), SEGMENT.read_bytes())
    found = lw.explain(SEGMENT, limit=1)
    assert len(found.pieces) == 1
    assert found.found.notes == ["1129 more bytes from 971 on: say at=971, or limit="]


def test_a_directory_without_a_place() -> None:
    found = lw.explain(PARTITION)
    assert found.path == str(SEGMENT)
    with pytest.raises(lw.UsageError, match="Name one of its files"):
        lw.explain(PARTITION, at=0)
    many = lw.explain(DATABASE)
    assert many.codec == "leveldb.table"


def test_a_directory_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    path.mkdir()
    (path / "partition.metadata").write_bytes((PARTITION / "partition.metadata").read_bytes())
    with pytest.raises(lw.NotFoundError, match="no primary file"):
        lw.explain(path)


def test_a_large_file_is_shown_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logwright.readers.explain.MOST_NODES", 100)
    path = tmp_path / "00000000000000000000.log"
    lw.write([{"value": b"v%d" % i} for i in range(100)], path, "kafka.log", batch_size=100)
    found = lw.explain(path)
    assert 1 <= len(found.pieces) < 10
    assert f"more bytes from {found.pieces[-1].stop} on" in found.found.notes[0]
    check_nodes_tile(found.pieces[0].nodes, found.pieces[0].data, 0)


def test_a_piece_that_is_too_long_is_shown_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logwright.readers.explain.LONGEST", 100)
    found = lw.explain(SEGMENT, at=0)
    assert found.pieces[0].data == SEGMENT.read_bytes()[:100]
    assert found.found.notes == ["of 971 bytes at 0 only 100 are shown"]
    check_nodes_tile(found.pieces[0].nodes, found.pieces[0].data, 0)


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"")
    assert lw.explain(path).pieces == []
    with pytest.raises(lw.UsageError, match="there is no byte 0"):
        lw.explain(path, at=0)


def test_standard_input_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with SEGMENT.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        check_covers_file(lw.explain("-", "kafka.log"), SEGMENT.read_bytes())


# Faults


def test_faults_by_number() -> None:
    damaged = KAFKA["dmg_flip_attr"].partition
    faults = lw.verify(damaged).faults
    found = lw.explain(damaged, fault=1)
    assert found.pieces[0].fault is not None
    assert found.pieces[0].start == faults[0][1].offset
    assert found.found.notes == [f"fault 1 of 1: checksum mismatch, {faults[0][1].detail}"]
    assert found.problems >= 2
    in_file = lw.explain(next(iter(sorted(damaged.glob("*86.log")))), fault="1")
    assert in_file.pieces[0].fault is not None
    with pytest.raises(lw.NotFoundError, match="no fault 2: there are 1, counted from 1"):
        lw.explain(damaged, fault=2)
    with pytest.raises(lw.NotFoundError, match="no fault 0"):
        lw.explain(damaged, fault=0)
    with pytest.raises(lw.NotFoundError, match="no fault 1: there are none"):
        lw.explain(PARTITION, fault=1)


def test_every_fault_of_damaged_directories() -> None:
    tried = 0
    for name in (
        "dmg_flip_len_huge",
        "dmg_epoch_alpha",
        "dmg_idx_zero",
        "dmg_trunc_two",
        "dmg_derived_all_missing",
    ):
        if name not in KAFKA:
            continue
        damaged = KAFKA[name].partition
        for i, (path, fault) in enumerate(lw.verify(damaged).faults, 1):
            if not path or not (damaged / Path(path).name).exists():
                with pytest.raises(lw.NotFoundError, match="of no file that can be explained"):
                    lw.explain(damaged, fault=i)
                continue
            found = lw.explain(damaged, fault=i)
            tried += 1
            assert found.pieces[0].start <= fault.offset < found.pieces[-1].stop or not fault.length
    assert tried > 3


def test_a_fault_at_the_very_end() -> None:
    """Nothing lies there: what comes before it is shown."""
    fault = Fault("kafka.log", SEGMENT.stat().st_size, 0, Kind.TRUNCATED, "it ends")
    (target,) = resolve(SEGMENT)
    assert isinstance(target, FileTarget)
    with _Opened.of(target) as file:
        (piece,) = file.around(fault, ExplainOptions()).pieces
    assert piece.stop == SEGMENT.stat().st_size


def test_a_row_that_is_not_among_the_nodes() -> None:
    leaf = Node("a", 0, 1, "int", 5)
    node = Node("b", 0, 1, "bytes", children=[leaf], space=Space(0, b"x", "unpacked", [leaf, leaf]))
    assert _place(node, 3) is None
    assert _place(Node("a", 4, 5, "int", row=3), 3) == (4,)


def test_more_than_there_is() -> None:
    assert lw.explain(SEGMENT, at=0, limit=99).pieces[-1].stop == SEGMENT.stat().st_size


def test_bytes_between_frames_are_pieces_too(tmp_path: Path) -> None:
    """Too few for a header, behind a damaged record that ends near the end of its block."""
    batch = WRITE_BATCH.pack(
        {"sequence": 5, "count": 1, "operations": [{"type": 1, "key": b"k", "value": b"v"}]}
    )
    for spare in range(8):
        payload = WRITE_BATCH.pack({"sequence": 1, "count": 0, "operations": []}) + bytes(
            BLOCK - 7 - 12 - spare
        )
        bad = bytearray(PHYSICAL.pack({"length": len(payload), "type": 1, "payload": payload}))
        bad[20] ^= 1
        data = bytes(bad) + bytes(spare) + PHYSICAL.pack({"length": len(batch), "type": 1, "payload": batch})
        path = tmp_path / "000003.log"
        path.write_bytes(data)
        check_covers_file(lw.explain(path), data)


def test_what_a_codec_passes_over_is_shown_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(Walk):
        def __iter__(self) -> Iterator[Stretch | Hole]:
            for found in super().__iter__():
                if isinstance(found, Stretch):
                    found.frames = found.frames.pick(slice(1, None))
                yield found

    monkeypatch.setattr("logwright.readers.explain.Walk", Late)
    found = lw.explain(SEGMENT)
    check_covers_file(found, SEGMENT.read_bytes())
    assert (found.pieces[0].frame, found.pieces[0].stop) == (False, 971)


def test_a_fault_of_the_directory_itself() -> None:
    damaged = LEVELDB["table_missing"].path / "db"
    with pytest.raises(lw.NotFoundError, match="of no file that can be explained"):
        lw.explain(damaged, fault=1)


def test_damaged_blocks_say_what_they_are() -> None:
    for name, struct in (("table_flip_data", "StoredDataBlock"), ("table_flip_index", "")):
        (path,) = sorted((LEVELDB[name].path / "db").glob("*.ldb"))[:1]
        found = lw.explain(path)
        check_covers_file(found, path.read_bytes())
        assert found.problems
        assert any(one.name == struct for one in all_nodes(found)) or not struct


def test_what_is_wrong_with_sound_frames() -> None:
    """Findings that end no scan are told beside what they are of."""
    path = KAFKA["craft_batch_extra_bytes"].partition
    found = lw.explain(path)
    assert any(piece.findings for piece in found.pieces)
    assert found.problems


def test_a_format_that_is_not_read_is_said_so() -> None:
    path = KAFKA["craft_v1_nested"].partition
    (piece,) = lw.explain(path).pieces
    if piece.unread:
        assert "magic 1" in piece.nodes[0].meaning
        check_nodes_tile(piece.nodes, piece.data, 0)


def test_only_one_thing_can_be_asked() -> None:
    with pytest.raises(lw.UsageError, match="at and where both say"):
        lw.explain(SEGMENT, at=1, where="offset=1")
    with pytest.raises(lw.UsageError, match="are given"):
        lw.explain([SEGMENT, PARTITION])  # type: ignore[arg-type]


def test_what_the_disk_can_not_read(tmp_path: Path) -> None:
    place = tmp_path / "map"
    place.write_bytes(b"# Mapfile\n0x3000 + 1\n0 0x200 +\n0x200 0x100 -\n0x300 0x534 +\n")
    found = lw.explain(SEGMENT, ddrescue_map=str(place))
    assert found.pieces[0].fault is not None
    assert any("shown as zeros" in note for note in found.found.notes)
    data = SEGMENT.read_bytes()
    shown = b"".join(piece.data for piece in found.pieces)
    assert shown == data[:0x200] + bytes(0x100) + data[0x300:]
    check_nodes_tile(found.pieces[0].nodes, found.pieces[0].data, 0)


# JSON


def test_json_says_all_of_it() -> None:
    found = lw.explain(SEGMENT, where={"offset": 17})
    told = json.loads(found.to_json())
    assert told == json.loads(json.dumps(found.to_dict()))
    assert (told["codec"], told["bytes"], told["focus"]) == ("kafka.log", 2100, "@61+587")
    (piece,) = told["pieces"]
    assert (piece["offset"], piece["length"], piece["kind"], piece["row"]) == (0, 971, "frame", 17)
    (batch,) = piece["fields"]
    fields = {one["name"]: one for one in batch["fields"]}
    assert fields["crc"]["checksum"]["right"] is True
    assert fields["crc"]["role"] == "checksum"
    assert fields["attributes"]["bits"][0]["meaning"] == "gzip"
    assert fields["records"]["inside"]["at"] == "@61+0"
    record = fields["records"]["inside"]["fields"][0]["fields"][17]
    assert record["at"] == "@61+587"
    raw = "".join(_raw(one) for one in (batch,))
    assert bytes.fromhex(raw) == SEGMENT.read_bytes()[:971]


def _raw(node: dict[str, object]) -> str:
    fields = node.get("fields")
    return "".join(map(_raw, fields)) if isinstance(fields, list) else str(node["raw"])


def test_json_of_damage_and_of_gathered_records() -> None:
    told = lw.explain(KAFKA["dmg_flip_attr"].partition, fault=1).to_dict()
    assert told["pieces"][0]["faults"][0]["kind"] == "checksum mismatch"
    assert told["pieces"][0]["kind"] == "damage"
    log = LEVELDB["wal_large_values"].path / "db" / "000003.log"
    inside = lw.explain(log, limit=1).to_dict()["pieces"][0]["fields"][0]["inside"]
    assert inside["how"] == "gathered"
    assert [one["length"] for one in inside["from"]] == [32761, 1]


def test_an_explanation_in_few_words() -> None:
    found = lw.explain(SEGMENT, limit=1)
    assert repr(found) == f"<Explanation {SEGMENT}: 0..971>"
    assert str(found) == found.text()
    assert repr(lw.explain(DATABASE)).count("..") >= 3
    assert registry.get(found.codec).name == "kafka.log"
