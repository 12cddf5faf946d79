"""`explain` finds a byte, a decompressed byte, a row or a fault in a file or a directory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from explanations import all_nodes, check_covers_file, check_nodes_tile, nodes_named

import logwright as lw
from logwright.codec import registry
from logwright.codec.explain import Node, Space
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.frames.walk import Hole, Stretch, Walk
from logwright.codec.kafka.formats.log.layout import RECORD, RECORD_BATCH
from logwright.codec.leveldb.formats.log.layout import WRITE_BATCH
from logwright.codec.leveldb.formats.records.layout import BLOCK
from logwright.codec.leveldb.formats.records.layout import RECORD as PHYSICAL
from logwright.corpora.cases import cases
from logwright.readers.explain import ExplainOptions, _Opened, _place, address, spell
from logwright.readers.fault_groups import numbered
from logwright.readers.resolve import resolve
from logwright.readers.target import FileTarget

KAFKA, LEVELDB = cases("kafka"), cases("leveldb")
PARTITION = KAFKA["v2_gzip_aiokafka"].partition
SEGMENT = PARTITION / "00000000000000000000.log"
DATABASE = LEVELDB["tables_snappy"].path / "db"


# Positions


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
def test_position_is_a_number_or_a_path_into_frames(text: int | str, places: tuple[int, ...]) -> None:
    assert address(text) == places
    assert address(spell(places)) == places


@pytest.mark.parametrize("text", ["", "x", "-1", -1, "@61", "61+5", "@+5", "1.5", "+5", "@61+", "0x"])
def test_invalid_position_is_refused(text: int | str) -> None:
    with pytest.raises(lw.UsageError, match="invalid position"):
        lw.explain(SEGMENT, at=text)


def test_explain_of_a_byte_marks_its_field() -> None:
    explanation = lw.explain(SEGMENT, at=21)
    assert [(piece.start, piece.stop, piece.frame) for piece in explanation.pieces] == [(0, 971, True)]
    assert explanation.explained.focus == (21,)
    line = next(line for line in explanation.text().splitlines() if line.startswith("►"))
    assert "attributes" in line
    assert len(lw.explain(SEGMENT, at=0, limit=2).pieces) == 2
    with pytest.raises(lw.UsageError, match="no byte 2100: the file has 2,100"):
        lw.explain(SEGMENT, at=2100)


def test_explain_a_decompressed_byte() -> None:
    explanation = lw.explain(SEGMENT, at="@61+620", items=1)
    (line,) = [line for line in explanation.text().splitlines() if line.startswith("►")]
    assert "+000026c" in line
    assert "headers" in line or "count" in line
    assert "[17]" in {node.name for node in all_nodes(explanation)}


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("@61+99999", "no byte 99999 in the data unpacked at 61: it has "),
        ("@62+5", "no packed data at byte 62"),
        ("@61@5+1", "no packed data at byte 5"),
        ("@17@0+1", "no packed data at byte 17"),
    ],
)
def test_byte_outside_of_decompressed_data(place: str, message: str) -> None:
    with pytest.raises(lw.UsageError, match=message):
        lw.explain(SEGMENT, at=place)


def test_byte_of_data_that_cannot_be_decompressed(tmp_path: Path) -> None:
    path = tmp_path / "000005.ldb"
    data = bytearray((DATABASE / "000005.ldb").read_bytes())
    data[:5] = b"\xff" * 5
    path.write_bytes(data)
    (piece,) = lw.explain(path, at="@0+7").pieces
    assert (piece.start, piece.fault is not None) == (0, True)


def test_explain_a_row_of_a_compressed_batch() -> None:
    explanation = lw.explain(SEGMENT, where={"offset": 17}, items=1)
    (row,) = [node for node in all_nodes(explanation) if node.row == 17]
    assert nodes_named(explanation, "offset_delta")[-1].meaning != ""
    assert next(child for child in row.children if child.name == "offset_delta").meaning == "offset 17"
    assert explanation.explained.focus == (61, row.start)
    assert explanation.pieces[0].row == 17


@pytest.mark.parametrize("where", ["offset=40", "offset == 40", {"offset": "40"}, [("offset", "=", 40)]])
def test_rows_are_addressed_in_many_ways(where: object) -> None:
    explanation = lw.explain(PARTITION, where=where)
    (piece,) = explanation.pieces
    assert explanation.path.endswith(".log")
    (row,) = [node for node in all_nodes(explanation) if node.row == piece.row]
    assert next(child for child in row.children if child.name == "offset_delta").meaning == "offset 40"


def test_all_rows_that_match_are_explained() -> None:
    table = lw.read(SEGMENT)
    key = table["key"].to_pylist()[3]
    positions = [i for i, row in enumerate(table["key"].to_pylist()) if row == key]
    explanation = lw.explain(SEGMENT, where={"key": key})
    assert len(explanation.pieces) == len(positions) > 1
    first = lw.explain(SEGMENT, where={"key": key}, limit=1)
    assert len(first.pieces) == 1
    assert first.explained.notes == ["more rows match; to show them, pass a larger limit (--limit)"]


def test_unknown_row_is_not_found() -> None:
    with pytest.raises(lw.NotFoundError, match="no row with offset=4711"):
        lw.explain(SEGMENT, where={"offset": 4711})
    with pytest.raises(lw.NotFoundError, match="no row with offset=4711"):
        lw.explain(PARTITION, where="offset=4711")
    with pytest.raises(lw.UsageError, match="no column"):
        lw.explain(SEGMENT, where={"offse": 1})
    with pytest.raises(lw.UsageError, match="where is empty"):
        lw.explain(SEGMENT, where={})


def test_rows_are_found_in_their_segment(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    rows = [{"key": b"k%d" % i, "value": bytes(200)} for i in range(300)]
    lw.write(rows, path, "kafka.partition", segment_bytes=4096, batch_size=1024)
    assert len(list(path.glob("*.log"))) > 5
    for offset in (0, 150, 299):
        explanation = lw.explain(path, where={"offset": offset})
        batch = RECORD_BATCH.unpack(explanation.pieces[0].data)[0]
        assert batch["base_offset"] <= offset <= batch["base_offset"] + batch["last_offset_delta"]
        assert int(Path(explanation.path).stem) <= offset
    assert "files of" in lw.explain(path).explained.notes[0]
    assert explanation.explained.notes == [], "the names of the segments say that no other can have it"
    assert "were not searched" in lw.explain(path, where={"key": b"k0"}).explained.notes[0]


def test_row_among_many_frames(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    lw.write([{"key": b"k%d" % i, "value": b"v"} for i in range(500)], path, "kafka.log", batch_size=100)
    for offset in (0, 250, 499):
        explanation = lw.explain(path, where={"key": b"k%d" % offset})
        (row,) = [node for node in all_nodes(explanation) if node.row == explanation.pieces[0].row]
        assert next(child for child in row.children if child.name == "key").value == b"k%d" % offset
        assert (
            RECORD.unpack(explanation.pieces[0].data, row.start - explanation.pieces[0].start)[0]["key"]
            == b"k%d" % offset
        )


def test_keys_of_a_database() -> None:
    rows = lw.read(DATABASE, columns="*").to_pylist()
    for row in (rows[0], rows[len(rows) // 2], rows[-1]):
        explanation = lw.explain(DATABASE, where={"key": row["key"]})
        meanings = [node.meaning for node in all_nodes(explanation) if node.row == explanation.pieces[0].row]
        assert f"{row['key'].decode()}, sequence {row['sequence']}, {row['type']}" in meanings


def test_entries_of_a_table() -> None:
    path = next(PARTITION.parent.parent.parent.glob("*/data/*/*.index"), None)
    for path in sorted(PARTITION.parent.parent.parent.glob("v2_rolled_4096/data/*/*.index")):
        rows = lw.read(path).to_pylist()
        if rows:
            break
    explanation = lw.explain(path, where={"offset": rows[-1]["offset"]})
    (entry,) = explanation.pieces[0].nodes
    assert entry.children[0].meaning == f"offset {rows[-1]['offset']}"
    assert entry.row == 0


# No position given


def test_small_files_are_shown_completely_and_large_ones_from_the_start() -> None:
    check_covers_file(lw.explain(SEGMENT), SEGMENT.read_bytes())
    explanation = lw.explain(SEGMENT, limit=1)
    assert len(explanation.pieces) == 1
    assert explanation.explained.notes == [
        "1,129 more bytes from 971 on; to show them, pass at=971 (--at 971) or a larger limit (--limit)"
    ]


def test_directory_without_a_position() -> None:
    explanation = lw.explain(PARTITION)
    assert explanation.path == str(SEGMENT)
    with pytest.raises(lw.UsageError, match="Pass one of its files"):
        lw.explain(PARTITION, at=0)
    many = lw.explain(DATABASE)
    assert many.codec == "leveldb.table"


def test_explain_of_a_directory_without_logs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    path.mkdir()
    (path / "partition.metadata").write_bytes((PARTITION / "partition.metadata").read_bytes())
    with pytest.raises(lw.NotFoundError, match="no primary file"):
        lw.explain(path)


def test_large_file_is_shown_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logwright.readers.explain.MOST_NODES", 100)
    path = tmp_path / "00000000000000000000.log"
    lw.write([{"value": b"v%d" % i} for i in range(100)], path, "kafka.log", batch_size=100)
    explanation = lw.explain(path)
    assert 1 <= len(explanation.pieces) < 10
    assert f"more bytes from {explanation.pieces[-1].stop}" in explanation.explained.notes[0]
    check_nodes_tile(explanation.pieces[0].nodes, explanation.pieces[0].data, 0)


def test_long_piece_is_shown_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logwright.readers.explain.LONGEST", 100)
    explanation = lw.explain(SEGMENT, at=0)
    assert explanation.pieces[0].data == SEGMENT.read_bytes()[:100]
    assert explanation.explained.notes == ["showing only 100 of 971 bytes at 0"]
    check_nodes_tile(explanation.pieces[0].nodes, explanation.pieces[0].data, 0)


def test_few_of_the_preallocated_zeros_of_a_file_are_explained(tmp_path: Path) -> None:
    path = tmp_path / ("0" * 20)
    lw.write([{"topic": "T", "body": b"x"}], path, "rocketmq.commitlog")
    size = path.stat().st_size
    os.truncate(path, 128 << 20)
    explanation = lw.explain(path, "rocketmq.commitlog")
    message, zeros = explanation.pieces
    assert (len(message.data), len(zeros.data), zeros.stop) == (size, 1 << 20, 128 << 20)
    assert explanation.explained.notes == [
        f"showing only 1048576 of {(128 << 20) - size:,} bytes at {size}; the rest are zeros"
    ]
    assert len(explanation.html()) < 4 << 20


def test_empty_file_has_nothing_to_explain(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"")
    assert lw.explain(path).pieces == []
    with pytest.raises(lw.UsageError, match="no byte 0"):
        lw.explain(path, at=0)


def test_standard_input_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with SEGMENT.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        check_covers_file(lw.explain("-", "kafka.log"), SEGMENT.read_bytes())


# Faults


def test_faults_are_addressed_by_number() -> None:
    damaged = KAFKA["dmg_flip_attr"].partition
    faults = lw.verify(damaged).faults
    explanation = lw.explain(damaged, fault=1)
    assert explanation.pieces[0].fault is not None
    assert explanation.pieces[0].start == faults[0][1].offset
    assert explanation.explained.notes == [f"fault 1 of 1: checksum mismatch: {faults[0][1].detail}"]
    assert explanation.problems >= 2
    in_file = lw.explain(next(iter(sorted(damaged.glob("*86.log")))), fault="1")
    assert in_file.pieces[0].fault is not None
    with pytest.raises(
        lw.NotFoundError, match=r"no fault 2: there are 1, numbered from 1\. `logwright verify "
    ):
        lw.explain(damaged, fault=2)
    with pytest.raises(lw.NotFoundError, match="no fault 0"):
        lw.explain(damaged, fault=0)
    with pytest.raises(lw.NotFoundError, match=r"no fault 1: there are no faults\. Use at or where"):
        lw.explain(PARTITION, fault=1)


def test_faults_are_numbered_as_verify_lists_them() -> None:
    """Errors come before warnings, each file's in its order. Similar faults, which are only counted, come last, and notes have no number."""
    error, warning, note = Severity.ERROR, Severity.WARNING, Severity.INFO
    faults = [
        (path, Fault("kafka.log", offset, 1, Kind.LENGTH, detail, severity))
        for path, offset, detail, severity in (
            ("a", 0, "zeros", note), ("a", 1, "wide", warning), ("a", 2, "bad 1", error), ("a", 5, "bad 22", error),
            ("b", 3, "bad 3", error), ("b", 3, "short", error), ("b", 4, "low", error),
        )
    ]  # fmt: skip
    assert [(path, fault.detail) for path, fault in numbered(faults)] == [
        ("a", "bad 1"), ("b", "bad 3"), ("b", "low"), ("a", "wide"), ("a", "bad 22"), ("b", "short"),
    ]  # fmt: skip
    damaged = LEVELDB["manifest_torn"].path / "db"
    lines = [
        line for line in lw.verify(damaged).text().splitlines() if line[:11] in ("  DAMAGED  ", "  warning  ")
    ]
    number = next(i for i, line in enumerate(lines, 1) if "MANIFEST-000002  at 448" in line)
    assert number == len(lines) > 2
    explanation = lw.explain(damaged, fault=number)
    assert (explanation.path, explanation.explained.focus) == (str(damaged / "MANIFEST-000002"), (448,))


def test_every_fault_of_damaged_directories_is_explained() -> None:
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
        for i, (path, fault) in enumerate(numbered(lw.verify(damaged).faults), 1):
            if not path or not (damaged / Path(path).name).exists():
                with pytest.raises(lw.NotFoundError, match="not in a file that can be explained"):
                    lw.explain(damaged, fault=i)
                continue
            explanation = lw.explain(damaged, fault=i)
            tried += 1
            assert (
                explanation.pieces[0].start <= fault.offset < explanation.pieces[-1].stop or not fault.length
            )
    assert tried > 3


def test_fault_at_the_end_of_the_file() -> None:
    """No bytes follow, so the bytes before it are shown."""
    fault = Fault("kafka.log", SEGMENT.stat().st_size, 0, Kind.TRUNCATED, "it ends")
    (target,) = resolve(SEGMENT)
    assert isinstance(target, FileTarget)
    with _Opened.of(target) as file:
        (piece,) = file.around(fault, ExplainOptions()).pieces
    assert piece.stop == SEGMENT.stat().st_size


def test_row_that_is_not_among_the_nodes() -> None:
    leaf = Node("a", 0, 1, "int", 5)
    node = Node("b", 0, 1, "bytes", children=[leaf], space=Space(0, b"x", "unpacked", [leaf, leaf]))
    assert _place(node, 3) is None
    assert _place(Node("a", 4, 5, "int", row=3), 3) == (4,)


def test_limit_beyond_the_file() -> None:
    assert lw.explain(SEGMENT, at=0, limit=99).pieces[-1].stop == SEGMENT.stat().st_size


def test_bytes_between_frames_are_pieces(tmp_path: Path) -> None:
    """Too few bytes for a header, after a damaged record near the end of its block."""
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


def test_bytes_that_a_codec_skips_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(Walk):
        def __iter__(self) -> Iterator[Stretch | Hole]:
            for part in super().__iter__():
                if isinstance(part, Stretch):
                    part.frames = part.frames.pick(slice(1, None))
                yield part

    monkeypatch.setattr("logwright.readers.explain.Walk", Late)
    explanation = lw.explain(SEGMENT)
    check_covers_file(explanation, SEGMENT.read_bytes())
    assert (explanation.pieces[0].frame, explanation.pieces[0].stop) == (False, 971)


def test_fault_of_the_directory() -> None:
    damaged = LEVELDB["table_missing"].path / "db"
    with pytest.raises(lw.NotFoundError, match="not in a file that can be explained"):
        lw.explain(damaged, fault=1)


def test_damaged_blocks_name_their_damage() -> None:
    for name, struct in (("table_flip_data", "StoredDataBlock"), ("table_flip_index", "")):
        (path,) = sorted((LEVELDB[name].path / "db").glob("*.ldb"))[:1]
        explanation = lw.explain(path)
        check_covers_file(explanation, path.read_bytes())
        assert explanation.problems
        assert any(node.name == struct for node in all_nodes(explanation)) or not struct


def test_warnings_on_sound_frames() -> None:
    """Warnings that do not end a scan are shown with their frame."""
    path = KAFKA["craft_batch_extra_bytes"].partition
    explanation = lw.explain(path)
    assert any(piece.findings for piece in explanation.pieces)
    assert explanation.problems


def test_frames_of_different_magic_are_explained_by_their_own_structures() -> None:
    (path,) = KAFKA["craft_v1_nested"].partition.glob("*.log")
    explanation = lw.explain(path)
    assert [piece.nodes[0].name for piece in explanation.pieces] == ["Message", "RecordBatch"]
    check_covers_file(explanation, path.read_bytes())


def test_only_one_address_may_be_given() -> None:
    with pytest.raises(lw.UsageError, match="at and where cannot be combined"):
        lw.explain(SEGMENT, at=1, where="offset=1")
    with pytest.raises(lw.UsageError, match="explain takes one"):
        lw.explain([SEGMENT, PARTITION])  # type: ignore[arg-type]


def test_unreadable_bytes_are_shown_as_such(tmp_path: Path) -> None:
    place = tmp_path / "map"
    place.write_bytes(b"# Mapfile\n0x3000 + 1\n0 0x200 +\n0x200 0x100 -\n0x300 0x534 +\n")
    explanation = lw.explain(SEGMENT, ddrescue_map=str(place))
    assert explanation.pieces[0].fault is not None
    assert any("shown as zeros" in note for note in explanation.explained.notes)
    data = SEGMENT.read_bytes()
    shown = b"".join(piece.data for piece in explanation.pieces)
    assert shown == data[:0x200] + bytes(0x100) + data[0x300:]
    check_nodes_tile(explanation.pieces[0].nodes, explanation.pieces[0].data, 0)


# JSON


def test_json_holds_the_complete_explanation() -> None:
    explanation = lw.explain(SEGMENT, where={"offset": 17})
    values = json.loads(explanation.to_json())
    assert values == json.loads(json.dumps(explanation.to_dict()))
    assert (values["codec"], values["bytes"], values["focus"]) == ("kafka.log", 2100, "@61+587")
    (piece,) = values["pieces"]
    assert (piece["offset"], piece["length"], piece["kind"], piece["row"]) == (0, 971, "frame", 17)
    (batch,) = piece["fields"]
    fields = {field["name"]: field for field in batch["fields"]}
    assert fields["crc"]["checksum"]["right"] is True
    assert fields["crc"]["role"] == "checksum"
    assert fields["attributes"]["bits"][0]["meaning"] == "gzip"
    assert fields["records"]["inside"]["at"] == "@61+0"
    record = fields["records"]["inside"]["fields"][0]["fields"][17]
    assert record["at"] == "@61+587"
    raw = "".join(_raw(column) for column in (batch,))
    assert bytes.fromhex(raw) == SEGMENT.read_bytes()[:971]


def _raw(node: dict[str, object]) -> str:
    fields = node.get("fields")
    return "".join(map(_raw, fields)) if isinstance(fields, list) else str(node["raw"])


def test_json_of_damage_and_of_fragmented_records() -> None:
    encoded = lw.explain(KAFKA["dmg_flip_attr"].partition, fault=1).to_dict()
    assert encoded["pieces"][0]["faults"][0]["kind"] == "checksum mismatch"
    assert encoded["pieces"][0]["kind"] == "damage"
    log = LEVELDB["wal_large_values"].path / "db" / "000003.log"
    inside = lw.explain(log, limit=1).to_dict()["pieces"][0]["fields"][0]["inside"]
    assert inside["how"] == "gathered"
    assert [span["length"] for span in inside["from"]] == [32761, 1]


def test_explanation_as_short_text() -> None:
    explanation = lw.explain(SEGMENT, limit=1)
    assert repr(explanation) == f"<Explanation {SEGMENT}: 0..971>"
    assert str(explanation) == explanation.text()
    assert repr(lw.explain(DATABASE)).count("..") >= 3
    assert registry.get(explanation.codec).name == "kafka.log"
