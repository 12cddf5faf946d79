"""Arguments of the wrong type, and numbers and flags as text, as forms and command lines have them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka_golden import CASES

import logwright as lw


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"view": 5}, "view is text, not 5"),
        ({"codec": 5}, "codec is text, not 5"),
        ({"columns": 5}, "columns are names, not 5"),
        ({"columns": b"key"}, "columns are names, not b'key'"),
        ({"columns": [1]}, "the name of a column is text, not 1"),
        ({"limit": "x"}, "limit is 'x'. It is a whole number, 0 or more"),
        ({"limit": 2.5}, "limit is 2.5"),
        ({"limit": 1 << 63}, "limit is 9223372036854775808"),
        ({"limit": True}, "limit is True"),
        ({"clean": "maybe", "mode": "AS_SYSTEM"}, "clean is 'maybe'. It is true or false"),
        ({"path": "a\0b"}, "a path holds no zero byte"),
    ],
)
def test_arguments_of_the_wrong_type(given: dict[str, Any], said: str) -> None:
    with pytest.raises(lw.UsageError, match=re.escape(said)):
        lw.read(**{"path": CASES["dmg_base"].partition, **given})


def test_numbers_and_flags_as_text() -> None:
    place = CASES["dmg_base"].partition
    assert lw.read(place, limit="5").num_rows == 5
    for said, clean in (("no", False), ("yes", True)):
        assert lw.verify(place, as_system=True, clean=said)["system"]["clean"] is clean  # type: ignore[arg-type]
    for jobs in (0, "x"):
        with pytest.raises(lw.UsageError, match="It is a whole number, 1 or more"):
            lw.verify(place, jobs=jobs)
    assert lw.read(place.as_uri().replace("file:///", "file:/")).num_rows == 97


def test_a_number_that_would_be_cut_is_refused(tmp_path: Path) -> None:
    for name in ("offset", "timestamp"):
        with pytest.raises(lw.UsageError, match=rf"row 1, column '{name}': 2\.5 is no "):
            lw.write(
                [{"value": "a", name: 1.0}, {"value": "b", name: 2.5}], tmp_path / "t-0", "kafka.partition"
            )
        with pytest.raises(lw.UsageError, match=rf"row 0, column '{name}': nan is no "):
            lw.write([{"value": "a", name: float("nan")}], tmp_path / "t-0", "kafka.partition")


def test_what_is_handed_over_by_mistake(tmp_path: Path) -> None:
    with pytest.raises(lw.UsageError, match="the ChunkedArray can't be taken as rows"):
        lw.write(pa.chunked_array([["a"]]), tmp_path / "t-0", "kafka.partition")
    with pytest.raises(lw.UsageError, match="a path is text, not 5"):
        lw.write([{"value": "a"}], 5, "kafka.partition")  # type: ignore[arg-type]
    with pytest.raises(lw.UsageError, match="codec says what is written"):
        lw.write([{"value": "a"}], tmp_path / "t-0", None)  # type: ignore[arg-type]


def test_convert_there_and_back(tmp_path: Path) -> None:
    place = CASES["dmg_base"].partition
    done = lw.convert(place, tmp_path / "rows.parquet")
    assert (done["rows"], done["files"]) == (97, [str(tmp_path / "rows.parquet")])
    lw.convert(tmp_path / "rows.parquet", tmp_path / "copy-0", "kafka.partition", compression_type="zstd")
    columns = "key,value,offset,timestamp,headers"
    assert lw.read(tmp_path / "copy-0", columns=columns).equals(lw.read(place, columns=columns))
