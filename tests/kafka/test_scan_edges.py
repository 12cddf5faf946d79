"""The bounded memory of a scan for damaged batches, and the count of zeros."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_log import batch, context, window

from logwright.codec.kafka.formats.log import scan as module
from logwright.codec.kafka.formats.log.scan import believe
from logwright.codec.kafka.formats.log.tables import HeaderClaim
from logwright.codec.window import zeros_in


@given(st.integers(0, 200_000), st.integers(0, 3), st.integers(0, 100))
def test_leading_zeros_are_counted_at_any_alignment(zeros: int, behind: int, before: int) -> None:
    data = np.frombuffer(b"\7" * before + bytes(zeros) + b"\1\0\2"[:behind], np.uint8)
    for at in (0, before // 2, before, before + zeros // 2, len(data)):
        expected = len(bytes(data[at:])) - len(bytes(data[at:]).lstrip(b"\0"))
        assert zeros_in(data[at:]) == expected


def test_remembered_damaged_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_CLAIMS", 3)
    data = b"".join(batch(n) for n in range(10))
    scan_context = context(base_offset=0)
    believe(window(data), 0, len(data), scan_context)
    assert list(scan_context.header_claims) == [(0, 1), (0, 2), (0, 3)]
    assert scan_context.header_claims[0, 3].rows == 3
    scan_context.header_claims = {(n, n + 1): HeaderClaim(1, 0, 0, False) for n in range(100, 107)}
    believe(window(data), 0, len(data), scan_context)
    assert list(scan_context.header_claims) == [(104, 105), (105, 106), (106, 107), (0, 1), (0, 2), (0, 3)]


def test_unknown_state_is_not_trusted() -> None:
    scan_context = context("odd.log")
    assert scan_context.base_offset is None
    believe(window(batch(0)), 0, 70, scan_context)
    assert scan_context.header_claims == {}


def test_incomplete_batch_is_torn() -> None:
    scan_context = context(base_offset=0)
    data = batch(0) + batch(1)[:-3]
    believe(window(data), 0, len(data), scan_context)
    assert [fault_text.torn for fault_text in scan_context.header_claims.values()] == [False, True]
