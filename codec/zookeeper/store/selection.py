"""The options that select rows: `path_prefix` and `at_zxid`, of a data directory and of its single files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools
from logwright.codec.deferred import compute as pc
from logwright.codec.fault import UsageError
from logwright.codec.option import Option, Options, Verb, parse_hexadecimal, parse_text, used_by
from logwright.codec.window import Decoded
from logwright.codec.zookeeper.names import zxid_text

if TYPE_CHECKING:
    from logwright.codec.zookeeper.formats.snapshot.sections import Shape

AT_ZXID = Option(
    "at_zxid",
    None,
    "The last transaction to include, such as 0x100000007; by default all. A single snapshot file holds the tree of its zxid only",
    parse_hexadecimal,
    low=0,
    high=(1 << 63) - 1,
    narrows=True,
)


def _parse_path(text: Any) -> str:
    """Return the path of a node. Raises `ValueError`."""
    path = parse_text(text)
    if not path.startswith("/"):
        raise ValueError("a path starts with /")
    return path


PATH_PREFIX = Option(
    "path_prefix",
    None,
    "Only this node and those below it; of transactions, those that name such a node",
    _parse_path,
    narrows=True,
)
ROW_OPTIONS = used_by({Verb.READ}, AT_ZXID, PATH_PREFIX, views=("rows",))
"""For the codecs of the single files."""
NAMES_NODES = ("path", "paths_to_delete", "txns")
"""The columns of a transaction that name nodes."""


def prefix_of(text: str | None) -> str:
    """Return the path without the trailing slash; "" for all nodes."""
    return "" if text is None else text.rstrip("/")


def below(paths: pa.Array, prefix: str) -> pa.Array:
    """Return whether each path is that of the node `prefix` or of a descendant."""
    return pc.or_(pc.equal(paths, prefix), pc.starts_with(paths, prefix + "/"))


def check_time(at: int, zxid: int | None, shape: Shape | None) -> None:
    """Check that a single snapshot holds the tree as it was after transaction `at`: neither older nor newer, and not changed while
    it was written. Raises `UsageError`.

    A server serializes the tree while it applies transactions. Since 3.6 it records the last one at the end of the file.
    """
    if zxid is None:
        raise _cannot(at, "the file name does not give the zxid of the snapshot")
    if zxid != at:
        raise _cannot(at, f"this snapshot holds the tree of zxid {zxid_text(zxid)}")
    zxids = () if shape is None or shape.ending is None else shape.ending.zxids(shape.read)
    if not zxids:
        raise _cannot(at, "this snapshot does not record the last transaction in it and may hold later ones")
    check_latest(at, max(zxids))


def check_latest(at: int, last: int) -> None:
    """Raise `UsageError` if `last`, a zxid in a snapshot, is later than `at`."""
    if last > at:
        raise _cannot(
            at, f"this snapshot holds changes up to zxid {zxid_text(last)}, made while it was written"
        )


def _cannot(at: int, why: str) -> UsageError:
    return UsageError(
        f"option at_zxid: the tree of zxid {zxid_text(at)} cannot be built from this file alone: {why}",
        advice="Name the data directory instead of the file: its logs are replayed",
    )


def select_nodes(decoded: Decoded, columns: Sequence[str], options: Options) -> Decoded:
    """Return the rows of nodes that `path_prefix` selects."""
    prefix = prefix_of(options["path_prefix"])
    mask = _mask(below(decoded.batch.column("path"), prefix))
    return _select(decoded, mask, columns)


def select_txns(decoded: Decoded, columns: Sequence[str], options: Options) -> Decoded:
    """Return the rows of transactions that name a node which `path_prefix` selects: in their own path, in a transaction of a multi, or
    among the ephemeral nodes of a closed session."""
    prefix = prefix_of(options["path_prefix"])
    batch = decoded.batch
    mask = _mask(below(batch.column("path"), prefix))
    mask |= _any_below(batch.column("paths_to_delete"), None, prefix)
    mask |= _any_below(batch.column("txns"), "path", prefix)
    return _select(decoded, mask, columns)


def _any_below(lists: pa.Array, field: str | None, prefix: str) -> Bools:
    """Return whether a path in each list is selected."""
    out = np.zeros(len(lists), np.bool_)
    if lists.null_count == len(lists):
        return out
    values = lists.flatten()
    paths = values if field is None else values.field(field)
    out[np.asarray(pc.list_parent_indices(lists))[_mask(below(paths, prefix))]] = True
    return out


def _mask(values: pa.Array) -> Bools:
    return np.array(pc.fill_null(values, False), np.bool_)


def _select(decoded: Decoded, mask: Bools, columns: Sequence[str]) -> Decoded:
    """Return these rows and columns; undecodable transactions stay between the same rows."""
    before = np.concatenate(([0], np.cumsum(mask)))
    faults = [(int(before[at]), fault) for at, fault in decoded.faults]
    return Decoded(decoded.batch.filter(pa.array(mask)).select(list(columns)), faults)
