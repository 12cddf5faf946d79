"""Following a store while its broker writes: each message comes once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import logwright as lw
from logwright.codec import registry
from logwright.codec.fault import UsageError
from logwright.codec.option import Options
from logwright.readers.follow import Following
from logwright.readers.report import Report
from logwright.readers.resolve import resolve
from logwright.readers.target import Skipped
from logwright.readers.task import run

LAYOUT = registry.get_layout("rocketmq.store")
SIZE = 1 << 13
OPTIONS = {
    "mappedFileSizeCommitLog": SIZE,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 4,
    "maxIndexNum": 81,
}


def following(path: Path, view: str | None = None, **words: Any) -> Following:
    def look() -> Any:
        return resolve([path], skipped=Skipped())

    assert LAYOUT.capabilities.follow is not None
    return Following(look, LAYOUT, view, Options(LAYOUT.capabilities.follow.options, words))


def append(path: Path, first: int, count: int) -> None:
    rows = [{"topic": "T", "queue_id": 0, "body": b"%d" % n} for n in range(first, first + count)]
    mode = "append" if first else "error"
    lw.write(rows, path, "rocketmq.store", mode=mode, **OPTIONS)


def read(follow: Following, start: dict[str, int], end: dict[str, int]) -> list[int]:
    batches = list(run(follow.between(start, end), ["body"], Report("x")))
    return [int(row["body"]) for batch in batches for row in batch.to_pylist()]


def test_each_message_of_a_growing_store_comes_once(tmp_path: Path) -> None:
    """The next commit log file may exist already, without a message."""
    home = tmp_path / "store"
    position: dict[str, int] = {}
    follow = following(home)
    for first in (0, 100, 200):
        append(home, first, 100)
        end = follow.latest(position)
        assert read(follow, position, end) == list(range(first, first + 100))
        position = end
    last = max(int(file.name) for file in (home / "commitlog").iterdir())
    (home / "commitlog" / f"{last + SIZE:020d}").write_bytes(bytes(SIZE))
    assert follow.latest(position) == position


def test_physical_offsets_limit_the_messages(tmp_path: Path) -> None:
    home = tmp_path / "store"
    append(home, 0, 20)
    offsets = lw.read(home)["physical_offset"].to_pylist()
    for start, end, expected in (
        ("earliest", "latest", range(20)),
        (offsets[5], "latest", range(5, 20)),
        ("earliest", str(offsets[7]), range(7)),
        ("latest", "latest", range(0)),
    ):
        follow = following(home, startingPhysicalOffset=start, endingPhysicalOffset=end)
        spans = follow.spans(stream=False)
        low = {name: span[1] for name, span in spans.items()}
        high = {name: span[2] for name, span in spans.items()}
        assert read(follow, low, high) == list(expected)


def test_what_a_stream_cannot_follow_is_refused(tmp_path: Path) -> None:
    append(tmp_path / "store", 0, 2)
    with pytest.raises(UsageError, match="view 'queues' cannot be followed"):
        following(tmp_path / "store", "queues")
    with pytest.raises(UsageError, match="endingPhysicalOffset is not for streams"):
        following(tmp_path / "store", endingPhysicalOffset=100).spans(stream=True)
    with pytest.raises(UsageError, match="expected earliest, latest or a number"):
        following(tmp_path / "store", startingPhysicalOffset="middle")
