"""Paths with invalid UTF-8 as a server reads them, and the same in kernels."""

from __future__ import annotations

import numpy as np
import pytest
from memory_directory import MemoryDirectory
from zookeeper_crafted import ROOT, buf, create, directory, log, multi, record, set_data, snapshot
from zookeeper_restore import our_restore
from zookeeper_startup import data_directory

from logwright.codec.zookeeper.state.java_utf8 import as_java, is_utf8

KNOWN = [
    (b"/a", "/a"),
    (b"/\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xee\x80\x80", "/é€😀\ue000"),
    (b"/\xff\xfe", "/\ufffd\ufffd"),
    (b"/\xed\xa0\xbd\xed\xb8\x80", "/\ufffd\ufffd"),
    (b"/\xed\xa0x", "/\ufffdx"),
    (b"/\xf0\x9f\x98", "/\ufffd"),
    (b"/\xc0\xaf", "/\ufffd\ufffd"),
    (b"/\xe0\x80\x80", "/\ufffd\ufffd\ufffd"),
    (b"/\xf4\x90\x80\x80", "/\ufffd\ufffd\ufffd\ufffd"),
    (b"/\xf4\x8f\xbf\xbf", "/\U0010ffff"),
]


@pytest.mark.parametrize(("data", "text"), KNOWN)
def test_invalid_utf8_decodes_as_in_java(data: bytes, text: str) -> None:
    assert as_java(data) == text.encode()


def test_valid_utf8_is_passed_through() -> None:
    rng = np.random.default_rng(11)
    leads = np.array([0x41, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xDF, 0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xF5], np.uint8)  # fmt: skip
    forms = [data for data, _ in KNOWN] + [
        rng.choice(leads, rng.integers(0, 6)).tobytes() for _ in range(20_000)
    ]
    forms += [b"0123456789" + form for form in forms]
    wrong = [
        form
        for form in forms
        if bool(is_utf8(np.frombuffer(b"/" + form, np.uint8), 1, len(form))) != (as_java(form) == form)
    ]
    assert wrong == []
    assert sum(as_java(form) == form for form in forms) > 1000


def paths(memory: MemoryDirectory) -> list[tuple[str, str | None]]:
    return [
        (row["path"], row["data"])
        for row in our_restore(memory)["nodes"]
        if not row["path"].startswith("/zookeeper")
    ]


def test_two_encodings_of_a_path_are_one_node() -> None:
    changed = directory(
        (1, create(b"/\xff")), (5, set_data(b"/\xfe", b"2")), (1, create(b"/b")), (2, buf(b"/b"))
    )
    assert paths(changed) == [("/", ""), ("/\ufffd", b"2".hex())]


def test_paths_in_multi_and_close_session_are_decoded_as_in_java() -> None:
    parts = multi((1, create(b"/\xff")), (-1, b"\xff\xff\xff\x9b"))
    failed = directory(
        (14, parts), (14, multi((1, create(b"/\xff")), (5, set_data(b"/\xfe", b"2")), (1, create(b"/c"))))
    )
    assert paths(failed) == [("/", ""), ("/c", b"x".hex()), ("/\ufffd", b"2".hex())]
    closed = directory((1, create(b"/\xff")), (-11, b"\0\0\0\2" + buf(b"/\xfe") + buf(b"/gone")))
    assert paths(closed) == [("/", "")]


def test_path_may_be_longer_than_its_record_after_decoding() -> None:
    long = b"/" + b"\xff" * 9000
    assert [len(path) for path, _ in paths(directory((1, create(long)), (1, create(long + b"/a"))))] == [
        1,
        9001,
        9003,
    ]


def test_paths_of_a_snapshot_are_decoded_as_in_java() -> None:
    both = data_directory(
        {
            "snapshot.3": snapshot(ROOT, (b"/\xff", -1, 0), (b"/\xfe/one", -1, 0)),
            "log.4": log(record(4, 5, set_data(b"/\xef\xbf\xbd/one", b"4"))),
        }
    )
    assert paths(both) == [("/", ""), ("/\ufffd", ""), ("/\ufffd/one", b"4".hex())]
