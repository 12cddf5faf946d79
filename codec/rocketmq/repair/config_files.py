"""Replace damaged files of `config/`, and `abort`. A broker reads the `.bak` file instead, or starts without the content."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from logwright.codec.describe import DescriptionError
from logwright.codec.rocketmq.formats import abort
from logwright.codec.rocketmq.formats.config import CODECS
from logwright.codec.rocketmq.store import tree
from logwright.codec.single_frame import SmallFileCodec
from logwright.codec.store.listing import Listing

_BACKUP = ".bak"


def replaced(
    listing: Listing, queues: Collection[tuple[str, int]], batch_topics: Collection[str]
) -> Iterator[tuple[str, bytes | None, str]]:
    """Yield the damaged files, their new content (None: no file) and a note about it. `queues` are those of all messages."""
    names = {entry.name for entry in listing.entries()}
    for name in (tree.ABORT, f"{tree.ABORT}{_BACKUP}"):
        if name in names and not _parses(abort.CODEC, listing, name):
            yield name, b"", f"{name} was damaged and is empty. A broker does not read it."
    for codec in CODECS:
        for name in sorted(
            name
            for name in names
            if tree.first(name) == tree.CONFIG and codec.pattern.fullmatch(name.partition("/")[2])
        ):
            if _parses(codec, listing, name):
                continue
            backup = f"{name}{_BACKUP}"
            if backup in names and _parses(codec, listing, backup):
                yield name, listing.read(backup), f"{name} was damaged and has the content of {backup}."
            elif name == tree.TOPICS_FILE:
                rows = tree.with_topics([], sorted(queues), batch_topics)
                yield (
                    name,
                    tree.topics_file(rows),
                    f"{name} was damaged and lists the topics of all messages, with default permissions.",
                )
            else:
                yield name, None, f"{name} was damaged and is not in the result."


def _parses(codec: SmallFileCodec, listing: Listing, name: str) -> bool:
    try:
        codec.parse(listing.read(name))
    except DescriptionError:
        return False
    return True
