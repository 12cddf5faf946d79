"""The iteration order of Java's HashMap: digests recorded from OpenJDK 17, for small and large tables, lists and trees.

`tests/oracle/test_hash_map.py` asks a real JDK.

"""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from logwright.codec.kafka.state.java_map import hash_map_order

SIZES = (0, 1, 9, 12, 13, 25, 49, 60, 97, 500, 3000)
# fmt: off
JAVA = [  # (step, jump, first half of the SHA-256 of the orders of all sizes, as 64-bit big-endian numbers)
    (1, 1, "e3a82537b4df7e2e"),
    (1, 5003, "4002622ba45fcd9c"),
    (1, 7, "1f12189c5f6dba2b"),
    (16, 1, "98053d57e868b4a1"),
    (16, 5003, "a8b903d2482d77fa"),
    (16, 7, "d17aa8cb4c7ea8f8"),
    (32, 1, "6fa3ef33ffb47646"),
    (32, 5003, "ddb43a78715c7feb"),
    (32, 7, "ef9e933a07d2f40e"),
    (64, 1, "d9c9a25d09358e1f"),
    (64, 5003, "4a9a25e5fe7ae466"),
    (64, 7, "710471a0b7f72acc"),
    (1000, 1, "4a17d5d1a53e022a"),
    (1000, 5003, "6db67252c1047a68"),
    (1000, 7, "ff5d187d8130ffc7"),
    (8000, 1, "f4d4539be03047c6"),
    (8000, 5003, "7766167039bcb12c"),
    (8000, 7, "e72b3acdf106f409"),
    (65536, 1, "7122fb42d70d1383"),
    (65536, 5003, "39f7a41b8c7d37cc"),
    (65536, 7, "6ecec4983da5f1dc"),
    (1048576, 1, "b1416e9dd56b8e6a"),
    (1048576, 5003, "c86de8d1bcf8c565"),
    (1048576, 7, "fb3409d29db17cd9"),
    (4294967297, 1, "89949385617c8b6b"),
    (4294967297, 5003, "643bfab11d1e4e6d"),
    (4294967297, 7, "2a1fee20c9547a26"),
    (1099511627776, 1, "cd88886c5ac821e2"),
    (1099511627776, 5003, "26ef4ef10178925a"),
    (1099511627776, 7, "74401b98a9b87a56"),
    (-64, 1, "a1536db3dbce5a87"),
    (-64, 5003, "1c63cca8a43e5914"),
    (-64, 7, "4a1ed1d4a0e5b8e0"),
    (-8589934592, 1, "8564d54718f884c8"),
    (-8589934592, 5003, "a436988de811bce4"),
    (-8589934592, 7, "e51d38767cf9ab13"),
]
# fmt: on


def keys(step: int, jump: int, size: int) -> list[int]:
    return [step * (i * jump % 10007) for i in range(size)]


@pytest.mark.alike
@pytest.mark.parametrize(("step", "jump", "digest"), JAVA)
def test_hash_map_order_equals_that_of_java(step: int, jump: int, digest: str) -> None:
    orders = [hash_map_order(keys(step, jump, size)) for size in SIZES]
    assert [sorted(order.tolist()) for order in orders] == [sorted(keys(step, jump, size)) for size in SIZES]
    assert hashlib.sha256(b"".join(o.astype(">i8").tobytes() for o in orders)).hexdigest()[:16] == digest


def test_last_key_of_a_bucket_becomes_the_root_of_its_tree() -> None:
    key_list = [
        2386623744, 1350566912, 3741372608, 700495168, 985681792, 3770710336, 1279326016, 2957031424, 3066058624,
        1728109952, 4169146816, 4001410624,
    ]  # fmt: skip
    java = [
        4169146816, 3741372608, 2386623744, 1350566912, 700495168, 985681792, 3770710336, 4001410624, 1279326016,
        2957031424, 3066058624, 1728109952,
    ]  # fmt: skip
    assert hash_map_order(key_list).tolist() == java
    assert hash_map_order(np.array(key_list, np.int64)).tolist() == java
