"""Hypothesis strategies for the formats of RocketMQ. See `logwright.roundtrip.strategies`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from logwright.codec import registry
from logwright.codec.describe import Struct
from logwright.codec.option import Options
from logwright.codec.rocketmq.formats import page
from logwright.codec.rocketmq.formats.batchconsumequeue import UNIT as BATCH_UNIT
from logwright.codec.rocketmq.formats.commitlog.layout import (
    BLANK,
    BLANK_MAGIC,
    BORN_V6,
    MESSAGE,
    STORE_V6,
    V1,
    V2,
)
from logwright.codec.rocketmq.formats.consumequeue import UNIT
from logwright.codec.rocketmq.formats.consumequeue_ext import UNIT as EXT_UNIT
from logwright.codec.rocketmq.formats.timer import SLOT
from logwright.codec.rocketmq.formats.timer import UNIT as TIMER_UNIT

Strategy = st.SearchStrategy[Any]

INT31 = st.one_of(st.integers(0, 9), st.integers(-(1 << 31), (1 << 31) - 1))
INT63 = st.one_of(st.integers(0, 99), st.integers(-(1 << 63), (1 << 63) - 1))
TIMES = st.one_of(st.integers(0, 10**13), st.just(-1))
_TOPICS = st.sampled_from(["Orders", "%RETRY%group", "t", "\u8ba2\u5355", "x" * 130])
_TEXT = st.text(st.characters(min_codepoint=3, max_codepoint=0xD7FF), min_size=1, max_size=6)
_NAMES = st.sampled_from(["UNIQ_KEY", "WAIT", "DELAY", "a", "\u540d"])
_HOSTS = st.sampled_from(["10.0.0.1:50001", "127.0.0.1:-1", "[2001:db8::1]:10911", "[::]:0"])
_BODIES = st.one_of(st.none(), st.binary(min_size=1, max_size=40))


@st.composite
def _messages(draw: Any) -> pa.Table:
    rows = []
    for _ in range(draw(st.integers(0, 10))):
        properties = [{"key": draw(_NAMES), "value": draw(_TEXT)} for _ in range(draw(st.integers(0, 2)))]
        drawn = {name: draw(st.none() | _TEXT) for name in ("KEYS", "TAGS")}
        properties += [{"key": name, "value": value} for name, value in drawn.items() if value is not None]
        born, store = draw(_HOSTS), draw(_HOSTS)
        flags = draw(st.sampled_from([0, 0, 2, 4, 8, 12, 0x001, 0x101, 0x201, 0x301, 1 << 20]))
        row = {
            "topic": draw(_TOPICS), "tags": drawn["TAGS"], "keys": drawn["KEYS"], "properties": properties, "body": draw(_BODIES),
            "born_host": born, "store_host": store, "born_timestamp_ms": draw(TIMES), "store_timestamp_ms": draw(TIMES),
            "sys_flag": flags | (BORN_V6 if "[" in born else 0) | (STORE_V6 if "[" in store else 0),
            "queue_id": draw(INT31), "queue_offset": draw(INT63), "flag": draw(INT31), "reconsume_times": draw(INT31),
            "prepared_transaction_offset": draw(INT63),
        }  # fmt: skip
        rows.append(row)
    table = registry.get("rocketmq.commitlog").tables["rows"]
    return pa.Table.from_pylist(rows, schema=table.schema([*rows[0]] if rows else ["topic"]))


@st.composite
def _units(draw: Any) -> pa.Table:
    table = registry.get("rocketmq.consumequeue").tables["rows"]
    offsets = sorted(draw(st.sets(st.integers(0, 1 << 40), max_size=8)))
    sizes = st.integers(1, (1 << 31) - 1)
    rows = [{"physical_offset": offset, "size": draw(sizes), "tags_code": draw(INT63)} for offset in offsets]
    return pa.Table.from_pylist(rows, schema=table.schema(["physical_offset", "size", "tags_code"]))


def _table(codec: str, rows: Any, columns: list[str]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=registry.get(codec).tables["rows"].schema(columns))


def _tables(codec: str, key: str | None = None, **columns: Strategy) -> Callable[[], Strategy]:
    """Return tables of rows with these columns. The values of column `key` are distinct."""
    return lambda: st.lists(
        st.fixed_dictionaries(columns), max_size=6, unique_by=None if key is None else lambda row: row[key]
    ).map(lambda rows: _table(codec, rows, list(columns)))


def _page(codec: str) -> Callable[[], Strategy]:
    names = registry.get(codec).tables["rows"].names()
    row = st.fixed_dictionaries(dict.fromkeys(names, INT63))
    return lambda: row.map(lambda values: _table(codec, [values], list(names)))


INT15 = st.integers(1, 32767)
COUNT = st.integers(1, (1 << 31) - 1)
OFFSETS = st.one_of(st.integers(0, 999), st.integers(0, 1 << 60))
_BATCHES: dict[str, Any] = {
    "physical_offset": OFFSETS, "size": COUNT, "tags_code": INT63, "store_timestamp": INT63, "base_offset": OFFSETS,
    "batch_size": INT15, "compacted_offset": INT31, "reserved": INT31,
}  # fmt: skip
_EXTENSIONS: dict[str, Any] = {
    "tags_code": INT63, "store_timestamp": st.integers(0, 1 << 47), "filter_bit_map": st.binary(max_size=9),
}  # fmt: skip
_TIMERS: dict[str, Any] = {
    "write_time": INT63, "delayed_time": INT31, "physical_offset": INT63, "message_size": INT31, "topic_hash": INT31,
    "magic": st.integers(1, 15),
}  # fmt: skip
_SLOTS: dict[str, Any] = {
    "time": OFFSETS,
    "first_position": INT63,
    "last_position": OFFSETS,
    "count": COUNT,
    "magic": INT31,
}
_ATTRIBUTES = st.dictionaries(_TEXT, _TEXT, max_size=2).map(
    lambda attributes: [{"key": key, "value": value} for key, value in attributes.items()]
)
_WORDS = st.text(st.characters(min_codepoint=32, max_codepoint=0xD7FF, exclude_characters="@"), max_size=6)
NAMES: dict[str, str] = dict.fromkeys(("rocketmq.commitlog", "rocketmq.consumequeue"), "00000000000000000000")
ROWS: dict[str, Callable[[], Strategy]] = {
    "rocketmq.commitlog": _messages,
    "rocketmq.consumequeue": _units,
    "rocketmq.batchconsumequeue": _tables("rocketmq.batchconsumequeue", **_BATCHES),
    "rocketmq.consumequeue_ext": _tables("rocketmq.consumequeue_ext", **_EXTENSIONS),
    "rocketmq.indexfile": _tables(
        "rocketmq.indexfile", key_hash=st.integers(1, (1 << 31) - 1), physical_offset=OFFSETS, store_timestamp=st.just(0),
    ),
    "rocketmq.checkpoint": _page("rocketmq.checkpoint"),
    "rocketmq.timercheck": _page("rocketmq.timercheck"),
    "rocketmq.abort": lambda: st.lists(st.fixed_dictionaries({"pid": st.integers(0, 10**17)}), max_size=1).map(
        lambda rows: _table("rocketmq.abort", rows, ["pid"])
    ),
    "rocketmq.topics": _tables(
        "rocketmq.topics", "topic", topic=_WORDS, read_queue_nums=INT31, write_queue_nums=INT31, perm=INT31,
        topic_filter_type=_WORDS, topic_sys_flag=INT31, order=st.booleans(), attributes=_ATTRIBUTES,
    ),
    "rocketmq.consumer_offsets": _tables(
        "rocketmq.consumer_offsets", "queue_id", topic=st.just("t"), group=st.just("g@"), queue_id=INT31, offset=INT63
    ),
    "rocketmq.delay_offsets": _tables("rocketmq.delay_offsets", "delay_level", delay_level=INT31, offset=INT63),
    "rocketmq.timerlog": _tables("rocketmq.timerlog", previous=INT63, reserved=INT63, **_TIMERS),
    "rocketmq.timerwheel": _tables("rocketmq.timerwheel", **_SLOTS),
}  # fmt: skip
OPTIONS: dict[str, Callable[[], Strategy]] = {
    "rocketmq.indexfile": lambda: st.just({"maxHashSlotNum": 4, "maxIndexNum": 9})
}


# Files


def _host(v6: bool, port: int) -> dict[str, Any]:
    return {"address": bytes(range(16 if v6 else 4)), "port": port}


@st.composite
def _log(draw: Any) -> bytes:
    """Generate messages, followed by zeros, by a blank record and any bytes, or by nothing."""
    out = bytearray()
    for _ in range(draw(st.integers(0, 6))):
        flags = draw(st.sampled_from([0, 0, 4, 8, BORN_V6, STORE_V6, BORN_V6 | STORE_V6]))
        body = draw(st.binary(max_size=30))
        stored = [
            b"",
            b"KEYS\x01k\x02TAGS\x01t\x02",
            b"KEYS\x01k",
            b"A\x01B\x01C\x02",
            b"KEYS\x01\x02x\x02",
            b"\xff\x01\xfe\x02",
        ]
        out += MESSAGE.pack(
            {
                "magic_code": draw(st.sampled_from([V1, V2])), "queue_id": draw(INT31), "queue_offset": draw(INT63),
                "physical_offset": len(out), "sys_flag": flags, "born_timestamp": draw(TIMES), "store_timestamp": draw(TIMES),
                "born_host": _host(bool(flags & BORN_V6), draw(INT31)), "store_host": _host(bool(flags & STORE_V6), 10911),
                "body_length": len(body), "body": body, "topic": draw(_TOPICS).encode()[:127],
                "properties": draw(st.sampled_from(stored)),
            }
        )  # fmt: skip
    ending = draw(st.sampled_from(["", "zeros", "blank", "stale"]))
    if ending == "zeros":
        out += bytes(draw(st.integers(8, 40)))
    elif ending:
        left = draw(st.integers(8, 60))
        out += BLANK.pack({"total_size": left, "magic_code": BLANK_MAGIC})
        out += bytes(left - 8) if ending == "blank" else b"\x07" * (left - 8)
    return bytes(out)


@st.composite
def _queue(draw: Any) -> bytes:
    out = b"".join(
        UNIT.pack({"physical_offset": 120 * n, "size": 120, "tags_code": draw(INT63)})
        for n in range(draw(st.integers(0, 6)))
    )
    return out + bytes(20 * draw(st.integers(0, 3)))


def _packed(struct: Struct, zeros: int, **values: Strategy) -> Callable[[], Strategy]:
    """Generate files of consecutive structures, followed by a multiple of `zeros` zero bytes."""
    rows = st.lists(st.fixed_dictionaries(values).map(struct.pack), max_size=5).map(b"".join)
    return lambda: st.builds(lambda data, n: data + bytes(zeros * n), rows, st.integers(0, 3))


@st.composite
def _index(draw: Any) -> bytes:
    """Generate an index file of four slots with linked entries."""
    hashes = draw(st.lists(st.integers(1, (1 << 31) - 1), max_size=8))
    rows = [
        {"key_hash": number, "physical_offset": 1 + 100 * n, "store_timestamp": 0}
        for n, number in enumerate(hashes)
    ]
    codec = registry.get("rocketmq.indexfile")
    table = _table("rocketmq.indexfile", rows, ["key_hash", "physical_offset", "store_timestamp"])
    context = codec.context("0", Options(codec.options, {"maxHashSlotNum": 4, "maxIndexNum": 9}))
    return b"".join(bytes(chunk) for chunk in codec.encode(table, None, None, context))


def _pages(struct: Struct) -> Callable[[], Strategy]:
    fields = [field.name for field in struct.fields if field.name != "rest"]
    values = st.fixed_dictionaries(dict.fromkeys(fields, INT63))
    return lambda: st.builds(
        lambda row, rest: struct.pack({**row, "rest": rest}).ljust(page.PAGE, b"\0"),
        values,
        st.binary(max_size=20),
    )


FILES: dict[str, Callable[[], Strategy]] = {
    "rocketmq.commitlog": _log,
    "rocketmq.consumequeue": _queue,
    "rocketmq.batchconsumequeue": _packed(BATCH_UNIT, 46, **_BATCHES),
    "rocketmq.consumequeue_ext": _packed(EXT_UNIT, 2, **_EXTENSIONS),
    "rocketmq.indexfile": _index,
    "rocketmq.checkpoint": _pages(page.CHECKPOINT.structures[0]),
    "rocketmq.timercheck": _pages(page.TIMER_CHECK.structures[0]),
    "rocketmq.timerlog": _packed(TIMER_UNIT, 52, **_TIMERS),
    "rocketmq.timerwheel": _packed(SLOT, 32, **_SLOTS),
}
