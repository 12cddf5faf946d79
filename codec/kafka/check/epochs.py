"""Check `leader-epoch-checkpoint` against the leader epochs of the batches. Source: `LeaderEpochFileCache` of Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.kafka.derive import EpochCache
from logwright.codec.kafka.names import EPOCH_FILE

_MOST = 100
"""The number of batches that are reported one by one."""
_TAKEN = (
    "the broker accepts it: a replica that asks where an epoch ends may truncate its log at the wrong offset"
)


class EpochCheck:
    """Compare the entries of the file (none if it cannot be read) with the batches.

    If a batch contradicts its entry and others confirm the entry, the batch is wrong: no checksum covers its epoch. If all batches
    contradict an entry, the entry is wrong. Offsets before the first entry are normal: a broker that recovers a part of the log
    leaves them.
    """

    def __init__(self, entries: list[tuple[int, int]]) -> None:
        cache = EpochCache()
        for entry in entries:
            cache.assign(*entry)
        kept = cache.entries
        self.dropped = len(entries) - len(kept)
        self.entries = kept
        self._epochs = np.array([-1, *(epoch for epoch, _ in kept)], np.int64)
        self._starts = np.array([start for _, start in kept], np.int64)
        self._agree = np.zeros(len(kept) + 1, np.int64)
        self._differ = np.zeros(len(kept) + 1, np.int64)
        self._odd: dict[int, list[tuple[str, Fault]]] = {}
        self._highest = -1

    def add(self, name: str, header: npt.NDArray[Any], start: Any, end: Any) -> None:
        """Take batches of the segment `name`. `start` and `end` are positions in the file."""
        epoch = header["partition_leader_epoch"].astype(np.int64)
        base = header["base_offset"].astype(np.int64)
        known = epoch >= 0
        if not self.entries:
            top = np.maximum.accumulate(np.maximum(epoch, self._highest))
            self._highest = int(top[-1])
            for i in np.flatnonzero(known & (epoch < top)).tolist():
                text = f"leader epoch {epoch[i]} after {top[i]}"
                self._note(0, name, int(start[i]), int(end[i]), text)
            return
        entry = np.searchsorted(self._starts, base, "right")
        odd = known & (entry > 0) & (self._epochs[entry] != epoch)
        np.add.at(self._differ, entry[odd], 1)
        np.add.at(self._agree, entry[known & (entry > 0) & ~odd], 1)
        for i in np.flatnonzero(odd).tolist():
            text = f"offset {base[i]} has leader epoch {epoch[i]}, but {EPOCH_FILE} says {self._epochs[entry[i]]}"
            self._note(int(entry[i]), name, int(start[i]), int(end[i]), text)

    def _note(self, entry: int, name: str, start: int, end: int, text: str) -> None:
        odd = self._odd.setdefault(entry, [])
        if len(odd) < _MOST:
            fault = Fault("kafka.log", start, end - start, Kind.ORDER, text, Severity.WARNING, system=_TAKEN)
            odd.append((name, fault))

    def finish(
        self, first: int | None, log_end: int | None, *, clean: bool, live: bool
    ) -> Iterator[tuple[str, Fault]]:
        """Return the faults. `first` is the offset at which the first segment begins, `log_end` the log end offset (None: unknown)."""
        for entry, odd in [] if self.dropped else sorted(self._odd.items()):
            if not entry or self._agree[entry]:
                yield from odd
                continue
            epoch, start = self.entries[entry - 1]
            text = (
                f"epoch {epoch} from offset {start} on: {odd[0][1].detail.partition(', ')[0]} in {odd[0][0]}"
            )
            yield EPOCH_FILE, _of_file(text, _TAKEN)
        beyond = [] if log_end is None else [item for item in self.entries if item[1] > log_end]
        if beyond:
            text = f"epoch {beyond[0][0]} begins at offset {beyond[0][1]}, but the log ends at {log_end}"
            fault = _of_file(text, "the broker drops the entries beyond the end when it starts")
            # The log was that long when the epoch began. A follower that truncates its log may stop before it writes the file.
            yield EPOCH_FILE, replace(fault, lost={"first_offset": log_end, "last_offset": beyond[-1][1] - 1})
        if self.entries and first is not None and self.entries[0][1] < first and not live:
            text = f"it begins at offset {self.entries[0][1]}, but the first segment at {first}: a segment may be missing"
            # A broker that was killed may not have written the file after it deleted old segments.
            fault = _of_file(text, "the broker begins at the first segment that is there")
            yield EPOCH_FILE, fault if clean else replace(fault, severity=Severity.INFO)
        if self.dropped:
            text = f"{self.dropped} of its entries {'contradicts' if self.dropped == 1 else 'contradict'} later ones"
            yield EPOCH_FILE, _of_file(text, "the broker drops them when it starts")


def _of_file(text: str, system: str) -> Fault:
    return Fault("kafka.leader_epoch_checkpoint", 0, 0, Kind.LINK, text, Severity.WARNING, system=system)
