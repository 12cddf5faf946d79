"""The other files of the metadata log in a repair: the vote of the node, and the snapshots of the metadata.

A damaged vote or newest snapshot keeps a broker from starting, and an incomplete snapshot gives it metadata that is not complete. It starts
without them: without a snapshot from an older one, or from the log if that is complete.
"""

from __future__ import annotations

from collections.abc import Iterable

from logwright.codec.engine.repair import OutputFile
from logwright.codec.fault import UnreadableError
from logwright.codec.kafka.formats.quorum_state import (
    MAX_BYTES,
    METADATA_PARTITION,
    QUORUM_STATE_FILE,
    parse_quorum_state,
)
from logwright.codec.kafka.repair.runs import Heads
from logwright.codec.kafka.startup.errors import BrokerError
from logwright.codec.kafka.store.raft_log import UNFINISHED
from logwright.codec.kafka.store.raft_snapshots import read_snapshots
from logwright.codec.store.extents import Copy
from logwright.codec.store.listing import Listing, Plan


class RaftFiles:
    """The files of the metadata log that a repair keeps, and what it says about the others."""

    def __init__(self, listing: Listing, plan: Plan, batches: Iterable[Heads]) -> None:
        """`batches` are the headers of the log's batches."""
        self.keep: list[OutputFile] = []
        self.notes: list[str] = []
        self.advice: list[str] = []
        self.names: set[str] = set()
        """All files that are decided here."""
        if listing.name != METADATA_PARTITION:
            return
        self._sizes = {file.name: file.size for file in plan.files}
        self._vote(listing)
        self._snapshots(listing, plan.facts["first_segment"] or 0, batches)
        self.names |= {name for name in self._sizes if name.endswith(UNFINISHED)}

    def _keep(self, name: str) -> None:
        self.names.add(name)
        self.keep.append(OutputFile(name, [Copy(name, 0, self._sizes[name])], name))

    def _vote(self, listing: Listing) -> None:
        if QUORUM_STATE_FILE not in self._sizes:
            return
        self.names.add(QUORUM_STATE_FILE)
        try:
            parse_quorum_state(listing.read(QUORUM_STATE_FILE, 0, MAX_BYTES), QUORUM_STATE_FILE)
        except (BrokerError, UnreadableError) as error:
            self.notes.append(
                f"{QUORUM_STATE_FILE} is damaged and is removed ({error}): the broker does not start with it. Without it the node"
                " forgets for whom it has voted, which matters only if an election was going on when it stopped."
            )
        else:
            self._keep(QUORUM_STATE_FILE)

    def _snapshots(self, listing: Listing, start: int, batches: Iterable[Heads]) -> None:
        snapshots = read_snapshots(listing, self._sizes)
        for heads in batches:
            for snapshot in snapshots:
                snapshot.compare(heads)
        kept = False
        for snapshot in snapshots:
            if not snapshot.flaw:
                self._keep(snapshot.name)
                kept |= snapshot.offset >= start
                continue
            self.names.add(snapshot.name)
            self.notes.append(
                f"{snapshot.name} is removed, since it is no valid snapshot of the metadata: {snapshot.flaw}"
            )
        if start > 0 and not kept:
            self.advice.append(
                f"The metadata log begins at offset {start}, and there is no valid snapshot of what was before: the broker does not start."
                " Copy a snapshot from another controller, or format the directory so that it fetches one."
            )
