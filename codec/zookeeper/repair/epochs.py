"""The files `acceptedEpoch` and `currentEpoch`, made so that a server of an ensemble starts.

A server starts where acceptedEpoch >= currentEpoch >= the epoch of the last transaction. Source: `QuorumPeer.loadDataBase`.
"""

from __future__ import annotations

from collections.abc import Mapping

from logwright.codec.zookeeper.names import ACCEPTED_EPOCH, CURRENT_EPOCH, epoch_of

EPOCHS = (ACCEPTED_EPOCH, CURRENT_EPOCH)


def right(known: Mapping[str, int | None], last: int) -> dict[str, int]:
    """The epochs where those that are there (None: can't be read) keep a server from starting, the least that do not; `last` is the last
    zxid. Without any, and in epoch 0, there need be none: a server on its own has none."""
    if not known and not epoch_of(last):
        return {}
    accepted, current = known.get(ACCEPTED_EPOCH), known.get(CURRENT_EPOCH)
    current = epoch_of(last) if current is None else max(current, epoch_of(last))
    accepted = current if accepted is None else max(accepted, current)
    return {ACCEPTED_EPOCH: accepted, CURRENT_EPOCH: current}
