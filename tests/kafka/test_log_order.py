"""Segments with decreasing offsets are read by one task."""

from __future__ import annotations

from logwright.codec import registry
from logwright.codec.option import Options
from logwright.corpora.cases import cases
from logwright.readers.source import open_source
from logwright.readers.split import split


def test_unordered_frames_are_not_split() -> None:
    """The rows of a frame may depend on unordered frames before it, which the reader of a split would not see."""
    partition = cases("kafka")["dmg_batch_twice"].partition
    cut = []
    for path in sorted(partition.glob("*.log")):
        with open_source(str(path)) as source:
            codec = registry.get("kafka.log")
            context = codec.context(path.name, Options(codec.options))
            cut.append((len(split(source, codec, context, 100)) > 1, path.stat().st_size > 100))
    assert sum(part != large for part, large in cut) == 1
