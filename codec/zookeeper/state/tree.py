"""The tree of a server in memory: loaded from a snapshot, changed by transactions as at a server's start.

`tree_kernels` describes the arrays, `tree_arrays` sizes them, `tree_load` loads them, `tree_read` reads them, `apply` changes them. Source:
`DataTree`, `FileTxnSnapLog.processTransaction`, `ZooKeeperServer.loadData` of ZooKeeper.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.window import Bytes, Frames, Window, portions_of
from logwright.codec.zookeeper.formats.txnlog import write as txnlog_encode
from logwright.codec.zookeeper.formats.txnlog.bodies import (
    DIGEST,
    DIGEST_VALUE,
    MEASURES,
    SOUND,
    STATUS,
    Bodies,
)
from logwright.codec.zookeeper.formats.txnlog.scan import BODY, HEAD_FIELDS, TXN_FRAME, TYPE, ZXID
from logwright.codec.zookeeper.jute import skip_acl
from logwright.codec.zookeeper.names import zxid_text
from logwright.codec.zookeeper.state import apply, tree_kernels
from logwright.codec.zookeeper.state import tree_fields as f
from logwright.codec.zookeeper.state.acl_cache import nameless
from logwright.codec.zookeeper.state.columns import TTL_MAX
from logwright.codec.zookeeper.state.digest import VERSION
from logwright.codec.zookeeper.state.java_utf8 import txns_as_read
from logwright.codec.zookeeper.state.tree_load import Mismatch, TreeLoader
from logwright.codec.zookeeper.state.tree_read import TreeReader

_NEVER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Death:
    """The end of a server: the index of the record that it applied, and the exception."""

    index: int
    code: int
    detail: int
    error: str


@dataclass(slots=True)
class Applied:
    """The outcome of some transactions."""

    count: int = 0
    """The number that was applied."""
    digests: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    """The digest of the tree after each record of the batch."""
    mismatches: list[Mismatch] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)
    """The zxids of transactions that could not be read, and were not applied."""
    reached: bool = False
    """Whether it ended because the following records are beyond `upto`."""
    died: Death | None = None


class Tree(TreeLoader, TreeReader):
    """A tree that transactions change."""

    def apply_frames(
        self,
        window: Window,
        frames: Frames,
        *,
        since: int | None = None,
        upto: int | None = None,
        check: bool = False,
    ) -> Applied:
        """Apply the transactions of a log, in order, as the scan of its codec finds them. Those at the start with a zxid up to `since`,
        and all from the first one after `upto`, are skipped. `check`: compare digests."""
        header = np.ascontiguousarray(frames.header).view(np.int64).reshape(-1, HEAD_FIELDS)
        which = np.flatnonzero(frames.header["kind"] == TXN_FRAME)
        if since is not None and len(which):
            later = header[which, ZXID] > since
            which = which[int(np.argmax(later)) :] if later.any() else which[:0]
        out = Applied()
        if not len(which):
            return out
        first = int(which[0])
        contiguous = int(which[-1]) - first + 1 == len(which)
        parts = []
        for done, stop in portions_of(frames.end[which] - frames.start[which], txnlog_encode.PORTION):
            selection = slice(first + done, first + stop) if contiguous else which[done:stop]
            digests = self._apply(
                window.data,
                np.ascontiguousarray(frames.start[selection]),
                np.ascontiguousarray(frames.end[selection]),
                np.ascontiguousarray(header[selection]),
                _NEVER if upto is None else upto,
                check,
                out,
            )
            parts.append(digests)
            if out.died is not None:
                out.died = replace(out.died, index=int(which[done + out.died.index]))
            if out.died is not None or out.reached:
                break
        out.digests = np.concatenate(parts)
        return out

    def _apply(
        self, buf: Bytes, starts: Int64s, ends: Int64s, heads: Int64s, upto: int, check: bool, out: Applied
    ) -> Int64s:
        bodies, _ = Bodies.of(buf, starts + BODY, ends - 1)
        buf, payload_ends, measured = txns_as_read(buf, ends - 1, heads, bodies.measures)
        digests = np.empty(len(starts), np.int64)
        part = np.empty((MEASURES, 1), np.int64)
        s = self._s
        s[[f.RECORD, f.POSITION]] = 0
        s[f.UPTO] = upto
        crcs = np.empty(len(starts), np.int64)
        apply.hash_paths(buf, measured, crcs)
        died: Death | None = None
        while died is None:
            why = apply.apply(buf, payload_ends, heads, measured, crcs, part, digests, self._arrays)
            if why in (f.DONE, f.REACHED):
                break
            if why == f.DIED:
                code, detail = int(s[f.CODE]), int(s[f.DETAIL])
                died = Death(int(s[f.RECORD]), code, detail, _death(code, detail))
            elif why == f.HAPPENED:
                # A multi, or the end of a session, may be incomplete.
                died = _died_of_quota(self._quotas.happened(self), int(s[f.RECORD]) - (not s[f.POSITION]))
            elif why == f.NEED_ACL:
                _, stop, _ = skip_acl(buf, int(s[f.DETAIL]), len(buf))
                content = buf[int(s[f.DETAIL]) : int(stop)].tobytes()
                if nameless(content):
                    died = Death(int(s[f.RECORD]), f.IS_NULL, 0, _death(f.IS_NULL, 0))
                else:
                    self._acls.learn(content)
            else:
                # A byte of a path may become three when it is decoded.
                self._make_room(int(why), 3 * int((ends - starts).max()))
        if died is None:
            died = _died_of_quota(self._quotas.write(self), int(s[f.RECORD]) - 1)
        n = int(s[f.RECORD]) if died is None else died.index
        out.died = died
        out.reached = why == f.REACHED
        unread = [
            i
            for i in np.flatnonzero(measured[STATUS, :n] != SOUND).tolist()
            if not apply.is_multi(buf, int(payload_ends[i]), int(heads[i, TYPE]), measured, i)
        ]
        out.count += n - len(unread)
        out.unread += heads[unread, ZXID].tolist()
        self._compare(heads[:n], measured[:, :n], digests[:n], check, out)
        return digests[:n]

    def _compare(self, heads: Int64s, computed: Int64s, digests: Int64s, check: bool, out: Applied) -> None:
        """As `compareDigest` and `compareSnapshotDigests`: nothing is compared up to the zxid of the snapshot's digest."""
        first = 0
        if self._target is not None:
            zxid, version, target = self._target
            there = np.flatnonzero(heads[:, ZXID] == zxid)
            if not len(there):
                return
            first = int(there[0])
            self._target = None
            if check and version == VERSION and target != digests[first]:
                out.mismatches.append(Mismatch(zxid, target, int(digests[first])))
        if check and self._s[f.DIGESTS]:
            stored = computed[DIGEST_VALUE]
            wrong = (computed[DIGEST] == VERSION) & (stored != digests)
            wrong[:first] = False
            for i in np.flatnonzero(wrong).tolist():
                out.mismatches.append(Mismatch(int(heads[i, ZXID]), int(stored[i]), int(digests[i])))

    def after_load(self, zxid: int | None = None) -> list[bytes]:
        """Finish as a server does after the replay: delete ephemeral nodes of sessions that are not open, and return their paths."""
        zxid = self.zxid if zxid is None else zxid
        extended = int(self._s[f.EXTENDED])
        gone: list[bytes] = []
        rows = self._sessions[: self._s[f.SESSIONS]]
        for session in np.flatnonzero((rows[:, f.Z_OPEN] == 0) & (rows[:, f.Z_HEAD] >= 0)).tolist():
            if tree_kernels.owner_kind(int(rows[session, f.Z_ID]), extended) != f.NORMAL:
                continue
            row = int(self._sessions[session, f.Z_HEAD])
            while row >= 0:
                if self._nodes[row, f.N_ALIVE] or (
                    self._nodes[row, f.N_GHOST] and self._row(self._path(row)) >= 0
                ):
                    gone.append(self._path(row))
                row = int(self._nodes[row, f.N_NEXT])
            while True:
                why = apply.delete_owned(session, zxid, self._arrays)
                if why != f.HAPPENED:
                    break
                self._quotas.happened(self)
        return gone


def _died_of_quota(error: str | None, index: int) -> Death | None:
    return None if error is None else Death(index, f.BAD_QUOTA, 0, error)


def _death(code: int, detail: int) -> str:
    if code == f.NO_SLASH:
        return f"StringIndexOutOfBoundsException: begin 0, end -1, length {detail}"
    if code == f.IS_NULL:
        return "NullPointerException"
    if code == f.BAD_TTL:
        return f"IllegalArgumentException: ttl must be positive and cannot be larger than: {TTL_MAX}"
    if code == f.BAD_OWNER:
        return f"IllegalArgumentException: Invalid ephemeralOwner. [{zxid_text(detail)[2:]}]"
    return f"RuntimeException: Failed to fetch acls for {detail}"
