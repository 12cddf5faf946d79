"""The stream over files of a single frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_store import ToyNote

import logwright as lw
from logwright.codec import registry
from logwright.codec.fault import DamageError
from logwright.codec.single_frame import SmallFileCodec
from logwright.readers.report_data import FileReport
from logwright.readers.source import MemorySource
from logwright.readers.stream import FileStream, Mode

SMALL = 4096

FEW = 1 << 20
"""The size limit of a file of a few values."""


def read_note(data: bytes, mode: Mode = Mode.FAILFAST) -> list[dict[str, Any]]:
    codec = ToyNote()
    batches = FileStream(
        MemorySource(data, "NOTE"), codec, "rows", ("text",), context=None, report=FileReport("NOTE", codec.name),
        mode=mode, window=SMALL,
    )  # fmt: skip
    return [row for batch in batches for row in batch.to_pylist()]


def test_single_frame_file_comes_in_one_window(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "x" * 100_000
    assert read_note(b"note:" + text.encode()) == [{"text": text}]
    with pytest.raises(DamageError, match="no note"):
        read_note(b"")
    assert [row["_corrupt_length"] for row in read_note(b"nothing", Mode.PERMISSIVE)] == [7]
    monkeypatch.setattr(ToyNote, "largest", 1000)
    with pytest.raises(DamageError, match="files of this kind are small"):
        read_note(b"note:" + text.encode())
    assert [row["_corrupt_length"] for row in read_note(b"note:" + text.encode(), Mode.PERMISSIVE)] == [
        100_005
    ]


@pytest.mark.parametrize(
    "name",
    [
        "meta.properties",
        "partition.metadata",
        "quorum-state",
        "acceptedEpoch",
        "CURRENT",
        "abort",
        "VERSION",
        "lastMark",
        "lastId",
    ],
)
def test_file_of_a_few_values_is_not_parsed_beyond_its_limit(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    with path.open("wb") as file:
        file.truncate(FEW + 1)
    report = lw.verify(path)
    codec = registry.get(report.files[0].codec)
    assert isinstance(codec, SmallFileCodec)
    ((_, fault),) = report.faults
    assert f"{FEW + 1} bytes; files of this kind are small, at most {FEW} bytes" in fault.detail
    monkeypatch.setattr(codec, "parse", None)  # calling it would fail
    assert not lw.verify(path).ok
