"""Records sections, plain and compressed, for the tests of a consumer."""

from __future__ import annotations

from typing import Any

import numpy as np

from logwright.codec.kafka.formats.log.layout import RECORD
from logwright.codec.kernels.compress import compress


def pack_record(i: int, value: bytes = b"v" * 20) -> bytes:
    return RECORD.pack({"offset_delta": i, "key": b"k", "value": value, "headers": []})


TWO_RECORDS = pack_record(0) + pack_record(1)


GZ, LZ4, SN = (compress(codec, TWO_RECORDS) for codec in ("gzip", "lz4", "snappy"))


def as_array(data: bytes) -> Any:
    return np.frombuffer(data, np.uint8)
