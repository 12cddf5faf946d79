"""The core columns of messages: every way in which properties may be stored, sizes that change within a file, the end of the buffer."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import logwright as lw
from logwright.codec.option import Options
from logwright.codec.rocketmq.formats.commitlog.codec import CODEC
from logwright.codec.rocketmq.formats.commitlog.layout import MESSAGE, V1, V2
from logwright.codec.window import Window
from logwright.roundtrip.rocketmq.reference import messages as reference
from logwright.roundtrip.rocketmq.specimens import SAMPLES

pytestmark = pytest.mark.kernel_modes

HOST = {"address": bytes(4), "port": 1}


def stored(messages: Iterable[tuple[str, bytes, bytes]]) -> tuple[bytes, list[dict[str, Any]]]:
    """Return a commit log of messages (topic, properties, body), and its rows as the description gives them."""
    out, frames = bytearray(), []
    for topic, properties, body in messages:
        frame = {
            "magic_code": V1 if len(topic.encode()) < 128 else V2, "queue_id": len(frames), "queue_offset": 7, "physical_offset": len(out),
            "sys_flag": 0, "flag": 0, "born_timestamp": -1 if len(body) == 5 else 5, "store_timestamp": 6, "born_host": HOST,
            "store_host": HOST, "reconsume_times": 0, "prepared_transaction_offset": 0, "body_length": len(body), "body": body,
            "topic": topic.encode(), "properties": properties,
        }  # fmt: skip
        out += MESSAGE.pack(frame)
        frames.append(frame)
    return bytes(out), list(reference(frames))


def check(folder: Path, messages: Iterable[tuple[str, bytes, bytes]]) -> None:
    data, expected = stored(messages)
    path = folder / "00000000000000000000"
    path.write_bytes(data)
    rows = lw.read(path, "rocketmq.commitlog", columns="*")
    rows.validate(full=True)
    assert [{name: row[name] for name in expected[0]} for row in rows.to_pylist()] == expected
    assert rows["born_timestamp"].null_count == sum(row["born_timestamp_ms"] == -1 for row in expected)
    for column in ("topic", "store_timestamp", "tags", "keys", "properties", "body"):
        assert lw.read(path, "rocketmq.commitlog", columns=[column])[column].equals(rows[column])


def chosen(random: random.Random, most: int) -> bytes:
    """Return properties, well-formed or not."""
    parts = [
        b"TAGS",
        b"KEYS",
        b"WAIT",
        b"\x01",
        b"\x02",
        b"\x01",
        b"\x02",
        b"v",
        b"x" * random.choice([1, 30, 31, 32, 33, 63, 64, 65]),
    ]
    parts += [b"TAGS\x01t\x02", b"KEYS\x01k\x02", b"NAME\x01value\x02", "é".encode(), b"\xe9"]
    return b"".join(random.choices(parts, k=random.randrange(most))).rstrip(b"\0")


@pytest.mark.parametrize("seed", range(8))
def test_properties_are_split_as_upstream_does(tmp_path: Path, seed: int) -> None:
    """A part without a name, a value or 0x01 is ignored, 0x01 in a value is content, and the last 0x02 may be missing."""
    generator = random.Random(seed)
    check(tmp_path, [("topic", chosen(generator, 12), b"body") for _ in range(60)])


@pytest.mark.alike
@pytest.mark.parametrize(
    "size", [pytest.param(n, marks=() if 62 <= n <= 66 else pytest.mark.extended) for n in range(56, 72)]
)
def test_the_last_value_ends_at_any_distance_from_the_chunks_of_the_search(tmp_path: Path, size: int) -> None:
    for value in (b"v" * (size - 5), b"v" * (size - 6) + b"\x02", b"v" * (size - 7) + b"\x02\x02"):
        check(tmp_path, [("topic", b"TAGS\x01" + value, b"")])


def test_columns_grow_where_later_messages_are_larger(tmp_path: Path) -> None:
    small = [("t", b"", b"")] * 300
    large = [("topic" * 40, b"KEYS\x01" + b"k" * 3000 + b"\x02", b"b" * 5000)] * 20
    many = [("t", b"a\x01b\x02" * 500, b"12345")] * 20
    check(tmp_path, [*small, *large, *many, *small])


@pytest.mark.alike
@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 63, 64, 65, 127, 128, 1023, 1024, 1025, 70_000])
def test_bodies_and_topics_of_all_sizes(tmp_path: Path, size: int) -> None:
    check(
        tmp_path,
        [("t" * max(1, min(size, 32_000)), b"", b"b" * size), ("t", b"", b"x"), ("t", b"", b"y" * size)],
    )


def test_topics_of_other_characters_than_ascii(tmp_path: Path) -> None:
    topics = ["t", "é", "t" * 61 + "é", "t" * 62 + "é", "t" * 64, "é" * 40, "é" * 200]
    for topic in topics:
        check(tmp_path, [(topic, b"TAGS\x01v\x02", b"body"), ("t", b"", b"body")])
    check(tmp_path, [(topic, "WAIT\x01é\x02".encode(), b"body") for topic in topics])


@pytest.mark.parametrize("expected", [0, 1, 1000])
def test_columns_do_not_depend_on_the_sizes_expected(expected: int) -> None:
    """The sizes of the messages read before say nothing about these."""
    data, rows = stored([("topic", b"KEYS\x01" + b"k" * i + b"\x02", b"b" * i) for i in range(100)])
    window = Window(np.frombuffer(data, np.uint8).copy(), 0, len(data))
    context = CODEC.context("00000000000000000000", Options(CODEC.options))
    frames = CODEC.scan(window, 0, context)
    context.sizes.messages, context.sizes.used = 500, [expected] * 20
    names = ("topic", "queue_id", "keys", "properties", "body")
    (decoded,) = CODEC.decode(window, frames, "rows", names, context)
    decoded.batch.validate(full=True)
    assert decoded.batch.to_pylist() == [{name: row[name] for name in names} for row in rows]
    assert context.sizes.messages == len(data)


def test_given_payload_is_only_used_if_it_is_the_message_of_its_row() -> None:
    """A payload of any bytes neither fails nor changes a row."""
    specimen, rng = SAMPLES[0].specimen(), random.Random(1)
    rows, frames, file = specimen.tables()
    data, column = specimen.all_bytes(), frames.column_names.index("payload")
    for _ in range(50):
        payloads = []
        for frame in frames.to_pylist():
            payload = bytearray(data[frame["position"] : frame["position"] + frame["size"]])
            for _ in range(rng.randrange(1, 3)):
                payload[rng.randrange(len(payload))] = rng.randrange(256)
            payloads.append(bytes(payload[: rng.choice((len(payload), rng.randrange(len(payload))))]))
        changed = frames.set_column(column, "payload", pa.array(payloads, pa.binary()))
        encoded = specimen.with_bytes(specimen.encode(rows, changed, file))
        assert encoded.tables()[0].equals(rows)


@pytest.mark.parametrize("sys_flag", [0, 0x10, 0x20, 0x30])
@pytest.mark.parametrize("name", ["born_host", "store_host"])
def test_port_that_clients_refuse_is_noted(sys_flag: int, name: str, tmp_path: Path) -> None:
    """An address has 16 bytes with the flag of its host. No checksum covers the port, and the row is as stored."""
    out = b""
    for port in (0, 65535, 65536, -1):
        hosts = {
            host: {"address": bytes(16 if sys_flag & bit else 4), "port": port if host == name else 7}
            for host, bit in (("born_host", 0x10), ("store_host", 0x20))
        }
        values = {"queue_id": 0, "queue_offset": len(out), "physical_offset": len(out), "sys_flag": sys_flag}
        times = {"flag": 0, "born_timestamp": 5, "store_timestamp": 6, "reconsume_times": 0}
        texts = {"prepared_transaction_offset": 0, "body_length": 1, "body": b"x", "topic": b"T"}
        frame = {"magic_code": V1, **values, **times, **hosts, **texts, "properties": b""}
        out += MESSAGE.pack(frame)
    path = tmp_path / "00000000000000000000"
    path.write_bytes(out)
    report = lw.verify(path, "rocketmq.commitlog")
    assert report.ok
    texts_ = [fault["detail"] for file in report["files"] for fault in file["faults"]]
    assert texts_ == [f"the port of {name} is {port}, expected 0 to 65535" for port in (65536, -1)]
    assert lw.read(path, "rocketmq.commitlog").num_rows == 4
