"""`contains` in the commands that take a filter."""

from __future__ import annotations

from pathlib import Path

import logwright as lw


def test_contains_selects_the_same_rows_in_read_convert_and_edit(tmp_path: Path) -> None:
    rows = [{"key": f"user-{i}".encode(), "value": b"\0\xfftoken" if i % 3 else b"none"} for i in range(30)]
    lw.write(rows, tmp_path / "db", "leveldb.db")
    lw.write(rows, tmp_path / "orders-0", "kafka.partition")
    for name in ("db", "orders-0"):
        place = tmp_path / name
        for filter in ("value contains token", [("value", "contains", b"token")], "value contains x'00ff'"):
            assert lw.read(place, filter=filter).num_rows == 20
        done = lw.convert(
            place, tmp_path / f"{name}.parquet", filter="value contains token and key contains '-2'"
        )
        assert done["rows"] == 8
        (tmp_path / "edited").mkdir(exist_ok=True)
        lw.edit(place, tmp_path / "edited" / name, drop="value contains x'00ff'")
        assert lw.read(tmp_path / "edited" / name).column("value").unique().to_pylist() == [b"none"]
