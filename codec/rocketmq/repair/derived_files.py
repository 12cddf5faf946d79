"""Compare the consume queues and index files of a store with its repaired commit log, and derive them again.

A queue keeps its place after messages that the broker has deleted: only its files say where that is.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.arrays import Bools, among
from logwright.codec.base import Codec
from logwright.codec.describe import dtype_of
from logwright.codec.fault import DamageError, Severity
from logwright.codec.frames.codec import Part
from logwright.codec.frames.walk import Hole, walk_listed
from logwright.codec.option import Options
from logwright.codec.rocketmq.check.index import IndexCheck
from logwright.codec.rocketmq.check.timer import timer_faults
from logwright.codec.rocketmq.derive import Deriver, Gaps, QueueEnd, Read
from logwright.codec.rocketmq.dispatch import Queues, differing, dispatches
from logwright.codec.rocketmq.formats.consumequeue import FILLER, UNIT
from logwright.codec.rocketmq.formats.consumequeue_ext import ADDRESS, FIRST_TAG
from logwright.codec.rocketmq.formats.consumequeue_ext import CODEC as EXT
from logwright.codec.rocketmq.formats.indexfile.codec import CODEC as INDEX
from logwright.codec.rocketmq.formats.indexfile.layout import HEAD, HEADER, entry_at
from logwright.codec.rocketmq.formats.page import PAGE
from logwright.codec.rocketmq.formats.timer import LOG as TIMER_LOG
from logwright.codec.rocketmq.formats.timer import WHEEL, WHEEL_SIZE
from logwright.codec.rocketmq.repair.tags import corrected, is_coded, tags_of, wrong_codes
from logwright.codec.rocketmq.repair.timer import Timer
from logwright.codec.rocketmq.startup.message import SCHEDULE_TOPIC
from logwright.codec.rocketmq.startup.message_store import StoreConfig
from logwright.codec.rocketmq.store import tree
from logwright.codec.rocketmq.store.log import UNITS, is_empty, log_frames, units_of
from logwright.codec.store.build import Piece
from logwright.codec.store.extents import Extent
from logwright.codec.store.listing import Listing, Plan, work_ahead
from logwright.codec.window import Zeros

_UNIT = dtype_of(UNIT)
QUEUES = (tree.QUEUE, tree.EXT, tree.BATCH)
_MOST_WRONG = 64
"""The number of wrong tags in a part of a queue file that are corrected. If more are wrong, the queue is."""
_ALIKE = 8
"""The number of messages whose tags are compared."""


class DerivedFiles:
    """The derived files of a store. `first` has the physical offset of the first message of each queue, and `low` is the start of the
    repaired log."""

    def __init__(
        self, store: Listing, plan: Plan, config: StoreConfig, options: Options, first: dict[tuple[str, int], int], low: int, *,
        correct: bool,
    ) -> None:  # fmt: skip
        self._listing, self._plan, self._config, self._options = store, plan, config, options
        self._first, self._low, self._correct = first, low, correct
        self._sizes = {entry.name: entry.size for entry in store.entries()}
        self.tagged: dict[int, bytes] = {}
        """Messages with corrected tags, by physical offset."""
        self.wrong_tags = False
        """Whether other messages have tags that their queues contradict."""

    def are_queues_sound(self, result: Listing) -> bool:
        """Return whether the existing queues point to the messages of the result."""
        remaining = {name for name in self._sizes if tree.first(name) in (tree.QUEUE, tree.BATCH)}
        for name in self._sizes:
            if tree.first(name) == tree.EXT and not self._sound_extension(name):
                return False
        ends: dict[str, int] = {}
        for piece in self.derive(result, queues=True, index=False):
            if tree.first(piece.name) not in (tree.QUEUE, tree.BATCH):
                continue
            start = ends.get(piece.name, 0)
            ends[piece.name] = start + len(piece.data)
            if self._sizes.get(piece.name, 0) < ends[piece.name] or not self._agrees(piece, start, result):
                return False
        if self.wrong_tags or any(self._sizes[name] != size for name, size in ends.items()):
            return False
        # Older queue files may point to deleted messages.
        return all(map(self._leads_below, remaining - ends.keys()))

    def is_index_sound(self, result: Listing, *, complete: bool) -> bool:
        """Return whether all index files are undamaged, and their entries lead to messages of the result with their keys. Messages without an
        entry count only if the index must be `complete`: a broker leaves such gaps."""
        slots = self._config.slots
        size = entry_at(slots, self._config.entries)
        for entry in self._listing.entries():
            if tree.first(entry.name) != tree.INDEX:
                continue
            if tree.base_of(entry.name) is None or not self._sound(entry.name, INDEX, size, slots=slots):
                return False
        return self._leads_to_keys(result, complete)

    @cached_property
    def deleted(self) -> set[tuple[str, int]]:
        """The queues whose messages are all deleted. Without their files they would begin at 0 again."""
        sound: dict[tuple[str, int], bool] = {}
        for name in self._sizes:
            queue = tree.queue_of(name) if tree.first(name) in QUEUES else None
            if queue is None or queue in self._first:
                continue
            extension = tree.first(name) == tree.EXT
            good = self._sound_extension(name) if extension else self._leads_below(name)
            sound[queue] = good and sound.get(queue, True)
        return {queue for queue, good in sound.items() if good}

    def derive(self, result: Listing, *, queues: bool, index: bool) -> Generator[Piece, None, int]:
        """Derive the queues and the index of the result. Return the store time of the last entry of its last full index file."""
        deriver = yield from derived_pieces(
            result, self._config, self._options, queues=queues, index=index, ends=self._begins_at, read=self._before
        )  # fmt: skip
        return deriver.index.full_at if index else self.full_at()

    def full_at(self) -> int:
        """Return the store time of the last entry of the last full index file."""
        for name in sorted(name for name in self._sizes if tree.first(name) == tree.INDEX)[::-1]:
            header, _ = HEADER.unpack(self._listing.read(name, 0, HEAD).ljust(HEAD, b"\0"))
            if header["index_count"] >= self._config.entries:
                return int(header["end_timestamp"])
        return 0

    def is_timer_sound(self) -> bool:
        """Return whether the files of the timer are undamaged, or not loaded."""
        size = self._config.timer_size
        timer = [name for name in self._sizes if tree.is_timer(name)]
        if size is None or not timer:
            return True
        if (
            any(tree.is_timer(name) for name, _ in self._plan.faults)
            or self._sizes.get(tree.TIMER_CHECK, PAGE) != PAGE
        ):
            return False
        logs = [name for name in timer if tree.first(name) == tree.TIMER]
        if not all(self._sound(name, TIMER_LOG, size) for name in logs):
            return False
        if self._sizes.get(tree.WHEEL) and not self._sound(tree.WHEEL, WHEEL, WHEEL_SIZE):
            return False
        return not any(timer_faults(self._listing, self._options[tree.TIMER_PRECISION.name]))

    def timer(self, result: Listing) -> Iterator[tuple[str, list[Extent]]]:
        """Return the files of the timer, derived from the timer queue of the result."""
        timer = Timer(self._listing, self._config.timer_size or 0, self._options[tree.TIMER_PRECISION.name])
        for _, part in _parts(result):
            timer.add(part)
        return timer.files()

    def _leads_below(self, name: str) -> bool:
        """Return whether all units of a queue file point to messages before the start of the log."""
        config, unit = self._config, UNITS.get(tree.first(name))
        size = config.batch_queue_size if tree.first(name) == tree.BATCH else config.queue_size
        if (
            unit is None
            or tree.queue_of(name) is None
            or not tree.is_padded(name)
            or self._sizes[name] != size
        ):
            return False
        units = units_of(self._listing, name, self._sizes[name], unit)
        return bool(len(units) and _below(units, self._low).all())

    @cached_property
    def _begins_at(self) -> dict[tuple[str, int], QueueEnd]:
        """The places of the first messages of batch and light queues after deleted ones. The messages do not say where they are."""
        queues: dict[tuple[str, int], list[str]] = {}
        for name in self._sizes if self._low > 0 else ():
            queue, folder = tree.queue_of(name), tree.first(name)
            if queue not in self._first or tree.base_of(name) is None:
                continue
            if folder == tree.BATCH or (folder == tree.QUEUE and tree.is_light(queue)):
                queues.setdefault(queue, []).append(name)
        places = (
            (queue, self._place_of(sorted(names, key=tree.start_of), self._first[queue]))
            for queue, names in queues.items()
        )
        return {queue: place for queue, place in places if place is not None}

    def _place_of(self, names: Sequence[str], phy: int) -> QueueEnd | None:
        """Return the place of the unit of a message in the files of a queue."""
        folder = tree.first(names[0])
        unit = UNITS[folder]
        for name in names:
            units = units_of(self._listing, name, self._sizes[name], unit)
            for i in np.flatnonzero(units["physical_offset"] == phy)[:1].tolist():
                at = tree.start_of(name) + i * unit.itemsize
                return QueueEnd(0 if folder == tree.BATCH else at // unit.itemsize, at)
        return None

    def _before(self, name: str) -> bytes:
        """Return what precedes that place in its file: the units of deleted messages, or fillers."""
        if tree.first(name) == tree.BATCH:
            return self._listing.read(name) if name in self._sizes else b""
        unit = UNIT.pack({"physical_offset": 0, "size": FILLER, "tags_code": 0})
        return unit * (self._config.queue_size // UNIT.min_size)

    def _agrees(self, piece: Piece, start: int, result: Listing) -> bool:
        """Return whether an existing queue file has these bytes, apart from tags codes. Correct or note wrong tags of messages."""
        stop = start + len(piece.data)
        if isinstance(piece.data, Zeros):
            return is_empty(self._listing, piece.name, start, stop)
        stored, data = self._listing.read(piece.name, start, len(piece.data)), bytes(piece.data)
        if tree.first(piece.name) == tree.BATCH:
            return stored == data
        if not self._has_addresses(piece.name, stored):
            return False
        if stored == data:
            return True
        old, new = (np.frombuffer(content, _UNIT) for content in (stored, data))
        same = (old["physical_offset"] == new["physical_offset"]) & (old["size"] == new["size"])
        same &= (new["size"] != 0) | (old["tags_code"] == new["tags_code"])
        filler = new["size"] == FILLER
        deleted = filler & _below(old, self._low)
        codes = old["tags_code"].astype(np.int64)
        hashes = (codes > FIRST_TAG) | (not self._config.ext)
        compared = ~filler & hashes & (new["size"] != 0)
        if not (same | deleted).all():
            return False
        computed, wrong = new["tags_code"].astype(np.int64), 0
        topic = piece.name.split("/")[1]
        for i in differing(topic, codes, computed, compared):
            message = self._message(result, new[i])
            if not is_coded(message):
                continue
            wrong += 1
            correct = self._correct and wrong <= _MOST_WRONG and topic != SCHEDULE_TOPIC
            alike = wrong_codes(codes, computed, i) if correct else []
            tags = {tags_of(self._message(result, new[k])) for k in alike[:_ALIKE]}
            right = corrected(message, tags.pop()) if len(tags) == 1 else None
            if right is not None:
                self.tagged[int(new["physical_offset"][i])] = right
            self.wrong_tags |= right is None
            if wrong > _MOST_WRONG:
                break
        return True

    def _has_addresses(self, name: str, stored: bytes) -> bool:
        """Return whether the files of `consumequeue_ext` of the same queue have the addresses in these units of a queue file."""
        if not self._config.ext:
            return True
        units = np.frombuffer(stored, _UNIT)
        codes = units["tags_code"].astype(np.int64)
        leads = (
            (codes <= FIRST_TAG) & (units["size"] > 0) & (units["size"] != FILLER) & ~_below(units, self._low)
        )
        places = codes[leads] & ADDRESS - 1
        folder = f"{tree.EXT}/{name.partition('/')[2].rpartition('/')[0]}/"
        size = self._config.ext_size
        bases = [tree.start_of(other) for other in self._sizes if other.startswith(folder)]
        return bool(among(places // size * size, np.array(sorted(bases), np.int64)).all())

    def _message(self, result: Listing, unit: np.void) -> bytes:
        name, at = tree.locate(result, int(unit["physical_offset"]))
        return result.read(name, at, int(unit["size"]))

    def _sound_extension(self, name: str) -> bool:
        """Return whether a broker loads a file of `consumequeue_ext`, and it is undamaged."""
        return tree.is_padded(name) and self._sound(name, EXT, self._config.ext_size)

    def _leads_to_keys(self, result: Listing, complete: bool) -> bool:
        files = [file for file in self._plan.files if file.codec == INDEX.name]
        check, queues = IndexCheck(self._listing, files, live=False), Queues()
        try:
            for _, part in _parts(result) if files else ():
                added = dispatches(part.data, part.start, part.end, tags=True, queues=queues)
                check.add(added, part.end - part.start)
        except IndexError:
            return False  # a broker refuses a message; deriving the index names it
        return not any(complete or fault.severity is not Severity.INFO for _, fault in check.finish())

    def _sound(self, name: str, codec: Codec, size: int, **hints: Any) -> bool:
        """Return whether a file has the expected size and no damage."""
        if self._sizes[name] != size:
            return False
        for item in walk_listed(self._listing, name, size, codec, **hints):
            faults = [item.fault] if isinstance(item, Hole) else item.faults
            if any(fault.severity is not Severity.INFO for fault in faults):
                return False
        return True


def _below(units: npt.NDArray[np.void], low: int) -> Bools:
    """Return which units point to messages before a physical offset."""
    phy = units["physical_offset"].astype(np.int64)
    return np.asarray((phy >= 0) & (phy < low) & (units["size"] > 0), np.bool_)


def derived_pieces(
    listing: Listing, config: StoreConfig, options: Options, gaps: Gaps = Gaps.REPEAT, *, queues: bool = True, index: bool = True,
    messages: Iterator[tuple[str, Part]] | None = None, ends: Mapping[tuple[str, int], QueueEnd] | None = None, read: Read | None = None,
) -> Generator[Piece, None, Deriver]:  # fmt: skip
    """Derive queues and index files from `messages`, by default those of an undamaged commit log. Some queues may begin at `ends` of existing
    ones, whose files `read` returns. Raises `DamageError` for a message that a broker refuses."""
    deriver = Deriver(config, gaps, tags=tree.indexes_tags(options), queues=queues, index=index)
    if not (queues or index):
        return deriver
    logs = tree.logs(listing)
    deriver.from_zero = bool(logs) and tree.base_of(logs[0].name) == 0
    deriver.ends, deriver.read = ends or {}, read or deriver.read
    for name, part in work_ahead(listing, messages or _parts(listing), _weight):
        try:
            yield from deriver.add(part.data, part.start, part.end)
        except IndexError as error:
            raise DamageError(
                "a broker ends the log at this message, because it cannot parse its properties",
                path=name, offset=part.offset + int(part.start[error.args[0]]),
            ) from None  # fmt: skip
    yield from deriver.finish()
    return deriver


def _weight(item: tuple[str, Part]) -> int:
    return item[1].data.nbytes


def _parts(listing: Listing) -> Iterator[tuple[str, Part]]:
    for entry in tree.logs(listing):
        for window, frames in log_frames(listing, entry, check=False):
            yield entry.name, Part.main(window, frames)
