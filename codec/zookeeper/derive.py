"""The derived files of a data directory: `acceptedEpoch` and `currentEpoch`. A snapshot is derived by a replay (`store.trace`).

A server of an ensemble starts where acceptedEpoch >= currentEpoch >= the epoch of the last transaction. Source:
`QuorumPeer.loadDataBase`.
"""

from __future__ import annotations

from collections.abc import Mapping

from logwright.codec.zookeeper.names import ACCEPTED_EPOCH, CURRENT_EPOCH, epoch_of

EPOCHS = (ACCEPTED_EPOCH, CURRENT_EPOCH)


def startable_epochs(known: Mapping[str, int | None], last: int) -> dict[str, int]:
    """Return the smallest epochs with which a server starts, and which are not below the `known` ones (None: unreadable).

    `last` is the last zxid. In epoch 0 a directory without such files needs none, since a server without an ensemble has none.
    """
    if not known and not epoch_of(last):
        return {}
    accepted, current = known.get(ACCEPTED_EPOCH), known.get(CURRENT_EPOCH)
    current = epoch_of(last) if current is None else max(current, epoch_of(last))
    accepted = current if accepted is None else max(accepted, current)
    return {ACCEPTED_EPOCH: accepted, CURRENT_EPOCH: current}
