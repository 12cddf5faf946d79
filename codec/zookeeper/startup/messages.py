"""The warnings of a start: what the owner of the data should know, in the server's own words if it has any."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from logwright.codec.store.listing import Listing
from logwright.codec.zookeeper.names import epoch_of, zxid_text
from logwright.codec.zookeeper.startup.file_txn_snap_log import EMPTY, Restored
from logwright.codec.zookeeper.store.files import DataFile, logs, newest_snapshot, snapshots

_SHOWN = 5
"""Examples that a warning names at most."""


@dataclass(frozen=True)
class Deleted:
    """The nodes that are deleted at the start, by reason."""

    dead: Sequence[bytes] = ()
    """Their sessions do not exist."""
    expired: Sequence[bytes] = ()
    """They have a TTL, but the server does not support TTLs."""
    taken: Sequence[bytes] = ()
    """A rejected snapshot has them as ephemeral nodes of a closed session."""


def warnings(listing: Listing, restored: Restored, deleted: Deleted) -> Iterator[str]:
    loaded = restored.loaded
    for name, failure in loaded.rejected:
        yield f"problem reading snap file {name}: {failure}"
    there = snapshots(listing)
    if loaded.file is None and there:
        which = f"none of {len(there)} snapshots is" if len(there) > 1 else "the only snapshot is not"
        yield f"{which} valid: it starts with an empty tree"
    if loaded.file is None and restored.transactions:
        yield f"{EMPTY}This should only be allowed during upgrading."
    yield from _twice(logs(listing))
    for stop in restored.stops:
        yield f"{stop.file.name}: the server stops reading at byte {stop.position}: {stop.why}"
    if there and restored.last_processed < newest_snapshot(listing):
        yield f"the tree ends at {zxid_text(restored.last_processed)}, although there is a snapshot of {zxid_text(newest_snapshot(listing))}"
    yield from _jump(restored)
    if restored.mismatches:
        first, count = zxid_text(restored.mismatches[0]), len(restored.mismatches)
        times = f"{count} transactions" if count > 1 else "one transaction"
        yield f"Digests are not matching: the tree differs from the original one from zxid {first} on ({times})"
    if restored.uncovered is not None:
        yield (
            f"Highest txn zxid {zxid_text(restored.zxid)} is not covering the snapshot digest zxid "
            f"{zxid_text(restored.uncovered)}, which might lead to inconsistent state"
        )
    for paths, why in (
        (deleted.expired, "nodes with a TTL are deleted, since extendedTypesEnabled is off"),
        (
            deleted.taken,
            "nodes are deleted that a rejected snapshot lists as ephemeral nodes of a closed session",
        ),
        (deleted.dead, "ephemeral nodes of closed sessions are deleted"),
    ):
        if paths:
            yield f"{why}: {_named(paths)}"
    other = restored.tree.other_root()
    if other is not None:
        yield (
            f"the node {other.decode(errors='replace')!r}, whose path has no slash, is the root: clients that ask for / get it, and none of "
            "the nodes here are among its children"
        )
    if restored.tree.dangling:
        numbers = ", ".join(map(str, sorted(restored.tree.dangling)[:_SHOWN]))
        yield f"reads of nodes whose ACL is not in the ACL table fail with MarshallingError: ACL {numbers}"


def _named(paths: Sequence[bytes]) -> str:
    more = f", and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(path.decode(errors="replace") for path in paths[:_SHOWN]) + more


def _twice(files: Sequence[DataFile]) -> Iterator[str]:
    for earlier, other in itertools.pairwise(files):
        if earlier.zxid == other.zxid:
            yield f"{earlier.name} and {other.name} are both read, in the order in which the directory lists them"


def _jump(restored: Restored) -> Iterator[str]:
    """Report missing transactions that the server does not notice: between the snapshot and the first applied one."""
    begun = restored.begun
    first = next((int(zxids[0]) for zxids in restored.applied if len(zxids)), None)
    if first is not None and first > begun + 1 and epoch_of(first) == epoch_of(begun):
        yield f"transactions {zxid_text(begun + 1)} to {zxid_text(first - 1)} are not applied, and the server does not report it"
