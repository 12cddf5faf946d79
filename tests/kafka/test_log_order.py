"""Segments whose offsets go back are read by one task."""

from __future__ import annotations

from logwright.codec import registry
from logwright.codec.option import Options
from logwright.corpora.cases import cases
from logwright.readers.source import open_source
from logwright.readers.split import split


def test_frames_out_of_order_are_not_cut() -> None:
    """What a frame gives may depend on those before it, where they are not in order; whoever reads a part would not know."""
    found = cases("kafka")["dmg_batch_twice"].partition
    cut = []
    for path in sorted(found.glob("*.log")):
        with open_source(str(path)) as source:
            codec = registry.get("kafka.log")
            context = codec.context(path.name, Options(codec.options))
            cut.append((len(split(source, codec, context, 100)) > 1, path.stat().st_size > 100))
    assert sum(one != large for one, large in cut) == 1
