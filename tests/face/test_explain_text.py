"""The explanation as text, and `logwright explain`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import logwright as lw
from logwright.cli import group
from logwright.codec.explain import Bits, Node
from logwright.corpora.cases import cases
from logwright.explanation.value import cut, of_bytes, plain, quoted, short, summary
from logwright.formats.text import escape

KAFKA, LEVELDB = cases("kafka"), cases("leveldb")
SEGMENT = KAFKA["v2_gzip_aiokafka"].partition / "00000000000000000000.log"
PLAIN = KAFKA["v2_none_java"].partition / "00000000000000000000.log"
DAMAGED = KAFKA["dmg_flip_attr"].partition


def run(*words: object) -> Result:
    return CliRunner().invoke(group, ["explain", *map(str, words)])


def test_record_batch_is_explained_line_by_line() -> None:
    text = lw.explain(SEGMENT, at=21, items=2).text(items=2, width=160)
    assert (
        text.splitlines()[0]
        == f"{SEGMENT}  kafka.log: Kafka log segment: record batches, or messages of magic 0 and 1, 2,100 bytes"
    )
    assert re.search(r"00000008  00 00 03 bf +batch_length +959 +bytes that follow", text)
    assert re.search(
        r"►  +00000015  00 01 +attributes +1 +compression=gzip, timestamp_type=CREATE_TIME", text
    )
    assert re.search(r"\.\.\.\. \.\.\.\. \.\.\.\. \.001 +compression +1 +gzip", text)
    assert re.search(r"crc +0x8ab0f4d0 +correct, covers bytes 21 to 970", text)
    assert "▼ records, unpacked: 1,007 bytes, from @61+0 on" in text
    assert re.search(r"\+0000004  0c +key.length +6", text)
    assert re.search(r"\+0000005  6b 65 79 2d 31 30 +key +\"key-10\"", text)
    assert re.search(r"\+0000047  … 936 bytes +\[2\.\.28\]", text)
    assert "… 878 more bytes" in text


def test_checksum_of_an_empty_range_covers_no_bytes(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}"
    lw.write([{"topic": "t"}], path, "rocketmq.commitlog")
    assert re.search(r"body_crc +0x00000000 +correct, covers no bytes", lw.explain(path).text(width=160))


def test_every_byte_of_a_short_file_is_in_the_text() -> None:
    path = SEGMENT.parent / "leader-epoch-checkpoint"
    actual = re.findall(
        r"^.{14}((?:[0-9a-f]{2} )*[0-9a-f]{2})(?:  |$)", lw.explain(path).text(), re.MULTILINE
    )
    assert bytes.fromhex(" ".join(actual)) == path.read_bytes()


def test_problems_of_a_fault_come_before_its_fields() -> None:
    lines = lw.explain(DAMAGED, fault=1).text().splitlines()
    assert (
        lines[1] == "  fault 1 of 1: checksum mismatch: crc mismatch: stored 0x1e15918d, computed 0x6216ddb0"
    )
    assert lines[3] == "DAMAGED  bytes 327 to 451 (125 bytes): checksum mismatch"
    assert "after an unclean stop the broker truncates the log here" in lines[5]
    assert any("✗ checksum mismatch: stored 0x1e15918d, computed 0x6216ddb0" in line for line in lines)
    assert any("✗ the records do not decompress" in line for line in lines)


def test_long_lists_are_abridged() -> None:
    """The requested item is shown."""
    explanation = lw.explain(SEGMENT, where={"offset": 17})
    text = explanation.text(items=2)
    assert re.search(r"►  +\+000024b  34 bytes +\[17\]", text)
    assert "15 more, not shown" in text
    assert "11 more, not shown" in text
    brief = lw.explain(SEGMENT, where={"offset": 17}, items=1).text(items=1)
    assert "11 more, not shown" in brief, "items that were not decoded count too"
    byte = lw.explain(SEGMENT, at="@61+620").text(items=2)
    assert re.search(r"►  +\+000026c", byte)


def test_requested_byte_is_marked() -> None:
    manifest = next((LEVELDB["few_puts"].path / "db").glob("MANIFEST*"))
    text = lw.explain(manifest, at=9).text()
    (line,) = [line for line in text.splitlines() if line.startswith("►")]
    assert "text" in line
    assert re.search(r"\[0\] +EditField", text)


def test_colours_and_width_do_not_change_the_text() -> None:
    explanation = lw.explain(DAMAGED, fault=1)
    plainly, coloured = explanation.text(width=100), explanation.text(width=100, colour=True)
    assert "\x1b[" not in plainly
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plainly
    assert "\x1b[31m" in coloured
    assert max(len(line) for line in plainly.splitlines()[6:] if "✗" not in line) <= 100
    assert len(explanation.text(width=60).splitlines()) == len(plainly.splitlines())


def test_padding_and_truncated_batches_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(PLAIN.read_bytes() + bytes(40))
    assert re.search(r"padding +40 bytes +40 zero bytes", lw.explain(path).text())
    path.write_bytes(PLAIN.read_bytes()[:70])
    assert "DAMAGED" in lw.explain(path).text()


def test_bytes_left_after_the_records_are_explained() -> None:
    text = lw.explain(KAFKA["craft_batch_extra_bytes"].partition).text()
    assert "record 0, at byte 0 of the stored records: bytes are left after the last record" in text


def test_preallocated_zeros_are_named(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.index"
    path.write_bytes(bytes(7) + b"\x05" + bytes(3) + b"\x09" + bytes(3) + b"\x08" + bytes(24))
    assert "  preallocated zeros" in lw.explain(path).text()


def test_long_bit_patterns_are_abridged() -> None:
    wide = Bits("b", 3, 2, 1, "", "", 8)
    assert len(wide.pattern()) > 23
    assert wide.pattern().endswith(".... ...0 1...")


# Values


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"", '""'),
        (b"abc", '"abc"'),
        (b"a\nb", '"a\\nb"'),
        (b'a"\\', '"a\\"\\\\"'),
        (b"\x1b[31m", "0x1b5b33316d"),
        (b"\xff\x00", "0xff00"),
        ("ä".encode() * 200, '"' + "ä" * 18 + "…"),
        (b"a" * 300, '"' + "a" * 18 + "…"),
        (b"a" * 79 + "ä".encode() + b"b" * 9, '"' + "a" * 18 + "…"),
        (b"a" * 40 + b"\xff" + b"b" * 90, "0x" + "61" * 8 + "6…"),
    ],
)
def test_bytes_are_shortened_to_one_line(value: bytes, text: str) -> None:
    assert of_bytes(value, 20) == text


def test_values_are_shortened_to_one_line() -> None:
    assert short(Node("n", 0, 1, "int", 5)) == "5"
    assert short(Node("n", 0, 4, "int", 5, role="checksum")) == "0x00000005"
    assert short(Node("n", 0, 1, "text", "a\x1b")) == '"a\\x1b"'
    assert short(Node("n", 0, 1, "bytes", None, children=[Node("length", 0, 1, "varint", -1)])) == "null"
    assert (
        short(Node("n", 0, 1, "struct"))
        == short(Node("n", 0, 1, "list", 5))
        == short(Node("n", 0, 1, "int"))
        == ""
    )
    assert cut("abc", 3) == "abc"
    assert escape("a\x1b\u202eb\ud800") == "a\\x1b\\u202eb\\ud800"
    assert quoted("ä\t") == '"ä\\t"'
    assert plain(b"a") == "a"
    assert plain(b"\xff") == {"$hex": "ff"}
    assert plain(5) == 5


def test_structure_is_shortened_to_one_line() -> None:
    def node(*children: Node) -> Node:
        return Node("s", 0, 9, "struct", children=list(children))

    number = Node("n", 0, 1, "int", 5)
    held = Node("b", 0, 1, "bytes", b"x", children=[Node("length", 0, 1, "varint", 1), node(number)])
    held.children[1].children = [number]
    assert summary(node(number, Node("t", 0, 1, "text", b"a"))) == 'n 5, t "a"'
    assert summary(node(*[number] * 5)) == ""
    assert summary(node(Node("l", 0, 1, "list", 3), Node("m", 0, 1, "list", 0))) == "l: 3 items"
    assert (
        summary(node(Node("n", 0, 1, "int", 5, "means"), Node("c", 0, 1, "int", 5, role="checksum")))
        == "means"
    )
    assert summary(node(held)) == "n 5"


def test_summary_names_ids_and_what_their_values_do_not_explain() -> None:
    fields = [Node(f"plain_{number}", 0, 1, "int", 7) for number in range(5)]
    known = Node("base_offset", 0, 8, "int", 271)
    unknown = Node("producer_id", 0, 8, "int", -1)
    session = Node("client_id", 0, 8, "int", 16, "0x10")
    mark = Node("eor", 0, 1, "int", 66, "B")
    empty = Node("rest", 9, 9, "bytes", b"")
    structure = Node("s", 0, 9, "struct", children=[*fields, known, unknown, session, mark, empty])
    assert summary(structure) == "base_offset 271, client_id 0x10"
    entry = Node("entry", 0, 9, "struct", children=[known])
    payload = Node("payload", 0, 9, "bytes", b"...", children=[Node("length", 0, 4, "int", 9), entry])
    assert summary(Node("record", 0, 9, "struct", children=[payload, mark])) == "base_offset 271"


# The verb


def test_command_accepts_at_and_where() -> None:
    result = run(SEGMENT)
    assert result.exit_code == 0, result.output
    assert result.output.count("RecordBatch") >= 2
    assert "not shown" in result.output
    assert run(SEGMENT, "--at", "0x15").output.count("►") == 1
    printed = run(SEGMENT.parent, "--where", "offset=17").output
    assert printed.count("►") == 1
    assert re.findall(r"\[\d+\]  Record", printed) == ["[0]  Record", "[17]  Record"]
    assert "DAMAGED" in run(DAMAGED, "--fault", 1).output
    assert "[3]" in run(SEGMENT, "--limit", 1, "--items", 40).output


def test_json_covers_every_byte() -> None:
    loaded = json.loads(run(SEGMENT, "--json").output)
    assert sum(piece["length"] for piece in loaded["pieces"]) == 2100


def test_explain_writes_an_html_page(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    result = run(SEGMENT, "--html", out)
    assert result.exit_code == 0
    assert "2,100 bytes explained" in result.output
    assert run(PLAIN, "--html", out).exit_code == 0, "an existing page is replaced"
    assert PLAIN.parent.name in out.read_text(encoding="utf-8")
    other = tmp_path / "other.html"
    other.write_text("mine")
    assert isinstance(run(SEGMENT, "--html", other).exception, lw.ExistsError)
    assert other.read_text() == "mine"
    assert run(SEGMENT, "--html", "-").output.startswith("<!doctype html>")
    both = run(SEGMENT, "--html", tmp_path / "both.html", "--json")
    assert '"explain": 1' in both.output


def test_invalid_arguments_are_refused() -> None:
    assert run("--at", "5").exit_code == 2
    assert run(SEGMENT, PLAIN).exit_code == 2
    assert isinstance(run(SEGMENT, "--nope", "1").exception, lw.UsageError)
    assert isinstance(run(SEGMENT, "--where", "offset=99999").exception, lw.NotFoundError)


def test_meanings_are_not_cut_in_a_pipe() -> None:
    lines = run(SEGMENT, "--limit", 1).stdout.splitlines()
    line = next(line for line in lines if "partition_leader_epoch" in line)
    assert line.endswith("of the leader that appended it, -1 for none; not covered by the checksum")
