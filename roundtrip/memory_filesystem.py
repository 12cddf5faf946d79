"""A file system in memory that fails and crashes on command, to verify the promises of writers.

It implements `writers.filesystem.FileSystem` with only the guarantees of POSIX. Every change is recorded; `crash` returns a possible
state of the disk after a machine crash that follows any prefix of the changes:

- The data of a file is on the disk as of its last `sync`. Any part of later writes may be missing.
- A change of names is on the disk after `sync_directory` of an affected directory. Later changes may be missing, but each is atomic (a
  rename never loses both names), and changes of the same name keep their order.

`fail(at, failure)` lets one operation, possibly a read, fail once.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from logwright.codec.window import Chunk
from logwright.writers.filesystem import Item, Lock, OpenFile, Stat, as_view

ROOT = 0


class Failure(StrEnum):
    """The kind of a failure: a disk error, a full disk, or a short write of half of the data."""

    EIO = "EIO"
    ENOSPC = "ENOSPC"
    SHORT = "short write"


class Kept(StrEnum):
    """The part of the unsynced changes that survives a crash."""

    NOTHING = "nothing"
    ALL = "all"
    NAMES = "names, but no data"
    DATA = "data, but no names"
    SOME = "a random part"


class Interrupted(BaseException):
    """Raised instead of an error for an interrupt, like Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Change:
    """One recorded change. `names` are (directory, name, inode before, inode after); data changes have an inode."""

    kind: str
    names: tuple[tuple[int, str, int | None, int | None], ...] = ()
    inode: int = -1
    directory: bool = False
    offset: int = 0
    data: bytes = b""


@dataclass(slots=True)
class _State:
    """A tree of inodes: directories are dictionaries of names, files are bytes."""

    folders: dict[int, dict[str, int]] = field(default_factory=lambda: {ROOT: {}})
    contents: dict[int, bytearray] = field(default_factory=dict)

    def copy(self) -> _State:
        return _State(
            {inode: dict(names) for inode, names in self.folders.items()},
            {inode: bytearray(data) for inode, data in self.contents.items()},
        )

    def apply(self, change: Change) -> None:
        if change.kind == "write":
            data = self.contents[change.inode]
            end = change.offset + len(change.data)
            data.extend(bytes(max(0, end - len(data))))
            data[change.offset : end] = change.data
        elif change.kind == "truncate":
            data = self.contents[change.inode]
            data[change.offset :] = bytes(max(0, change.offset - len(data)))
        for folder, name, _, after in change.names:
            if after is None:
                self.folders[folder].pop(name, None)
            else:
                self.folders[folder][name] = after
        if change.kind == "create":
            self.contents.setdefault(change.inode, bytearray())
        elif change.kind == "mkdir":
            self.folders.setdefault(change.inode, {})


class MemoryFileSystem:
    """See the module. `ticks` counts the operations so far, `trace` holds the changes."""

    def __init__(self, state: _State | None = None, *, can_exchange: bool = True, boot: int = 0) -> None:
        self._start = _State() if state is None else state
        self._state = self._start.copy()
        self._next = 1 + max([ROOT, *self._state.folders, *self._state.contents])
        self._locks: dict[int, _Lock] = {}
        self._boot = boot
        self._fail_at = -1
        self._failure: Failure | None = None
        self._meanwhile: tuple[int, Callable[[], None]] | None = None
        self.can_exchange = can_exchange
        self.trace: list[Change] = []
        self.ticks = 0
        self.failed = False
        self.busy: dict[str, str] = {}
        """Paths that the real system has locked, and the holder. Set by tests."""
        self.devices: dict[str, int] = {}
        """Mount points and their devices. Set by tests."""

    # For tests

    def fail(self, at: int, failure: Failure | None = Failure.EIO) -> None:
        """Let operation number `at`, counted from now, fail once; None lets it be interrupted as by Ctrl-C."""
        self._fail_at, self._failure, self.failed = self.ticks + at, failure, False

    def meanwhile(self, at: int, act: Callable[[], None]) -> None:
        """Run a function just before operation number `at`, counted from now."""
        self._meanwhile = (self.ticks + at, act)

    def crash(self, prefix: int, kept: Kept = Kept.NOTHING, seed: int = 0) -> MemoryFileSystem:
        """Return the disk after a machine crash that follows the first `prefix` changes, without processes and locks."""
        state = _crashed(self._start, self.trace[:prefix], kept, random.Random(seed))
        return MemoryFileSystem(state, can_exchange=self.can_exchange, boot=self._boot + 1)

    def killed(self, prefix: int) -> MemoryFileSystem:
        """Return the disk after only the process was killed: all its changes remain."""
        state = self._start.copy()
        for change in self.trace[:prefix]:
            state.apply(change)
        return MemoryFileSystem(state, can_exchange=self.can_exchange, boot=self._boot + 1)

    def fork(self) -> MemoryFileSystem:
        """Return a copy of the disk with everything synced."""
        return self.killed(len(self.trace))

    def put(self, path: str, data: bytes) -> None:
        """Add an existing file and its parent directories, without recording changes."""
        above = self._make_folders(os.path.dirname(path))
        for state in (self._start, self._state):
            state.folders[above][os.path.basename(path)] = self._next
            state.contents[self._next] = bytearray(data)
        self._next += 1

    def make(self, path: str) -> None:
        """Add an existing directory and its parents, without recording changes."""
        self._make_folders(path)

    def tree(self, path: str = "/") -> dict[str, bytes | None]:
        """Return everything below a directory: relative path to content, None for directories."""
        inode = self._find(path)
        return {} if inode is None else dict(_walk(self._state, inode, ""))

    def dump(self, path: str, into: str) -> None:
        """Write everything below a directory to a real directory."""
        for name, data in self.tree(path).items():
            real = os.path.join(into, name)
            if data is None:
                os.mkdir(real)
            else:
                with open(real, "wb") as file:
                    file.write(data)

    # FileSystem

    def real(self, path: str) -> str:
        return os.path.normpath(path)

    def stat(self, path: str) -> Stat | None:
        self._tick(path)
        inode = self._find(path)
        if inode is None:
            return None
        device = max(
            (d for mount, d in self.devices.items() if f"{path}/".startswith(f"{mount}/")), default=0
        )
        if inode in self._state.folders:
            return Stat(True, 0, 0.0, device)
        return Stat(False, len(self._state.contents[inode]), 0.0, device)

    def listdir(self, path: str) -> list[Item]:
        self._tick(path)
        names = self._state.folders[self._folder(path)]
        return [self._item(name, inode) for name, inode in sorted(names.items())]

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        self._tick(path)
        data = self._state.contents[self._file(path)]
        return bytes(data[offset:] if length is None else data[offset : offset + length])

    def read_into(self, path: str, offset: int, out: memoryview) -> int:
        data = self.read(path, offset, len(out))
        out[: len(data)] = data
        return len(data)

    def is_hole(self, path: str, offset: int, length: int) -> bool:
        return False

    def create(self, path: str) -> OpenFile:
        self._tick(path)
        if self._find(path) is not None:
            raise _error(errno.EEXIST, path)
        return _Open(self, path, self._create(path))

    def open(self, path: str) -> OpenFile:
        self._tick(path)
        return _Open(self, path, self._file(path))

    def mkdir(self, path: str) -> None:
        self._tick(path)
        above = self._folder(os.path.dirname(path))
        if self._find(path) is not None:
            raise _error(errno.EEXIST, path)
        inode, self._next = self._next, self._next + 1
        names = ((above, os.path.basename(path), None, inode),)
        self._change(Change("mkdir", names, inode, directory=True))

    def remove(self, path: str) -> None:
        self._tick(path)
        inode = self._file(path)
        self._change(Change("remove", ((*self._entry(path), inode, None),), inode))

    def rmdir(self, path: str) -> None:
        self._tick(path)
        inode = self._folder(path)
        if self._state.folders[inode]:
            raise _error(errno.ENOTEMPTY, path)
        self._change(Change("rmdir", ((*self._entry(path), inode, None),), inode))

    def rename(self, old: str, new: str) -> None:
        self._tick(old)
        self._rename(old, new)

    def rename_new(self, old: str, new: str) -> None:
        self._tick(old)
        self._there(old)
        if self._find(new) is not None:
            raise _error(errno.EEXIST, new)
        self._rename(old, new)

    def _rename(self, old: str, new: str) -> None:
        inode, replaced = self._there(old), self._find(new)
        target = self._entry(new)  # a missing parent is found first
        if f"{new}/".startswith(f"{old}/") and new != old:
            # A directory cannot be moved below itself.
            raise _error(errno.EINVAL if inode in self._state.folders else errno.ENOTDIR, new)
        if replaced is not None and replaced != inode:
            if inode in self._state.folders or f"{old}/".startswith(f"{new}/"):
                if self._state.folders[self._folder(new)]:
                    raise _error(errno.ENOTEMPTY, new)
            elif replaced in self._state.folders:
                raise _error(errno.EISDIR, new)
        names = ((*self._entry(old), inode, None), (*target, replaced, inode))
        self._change(Change("rename", names))

    def exchange(self, left: str, right: str) -> bool:
        self._tick(left)
        first, second = self._there(left), self._there(right)
        if not self.can_exchange or (left != right and os.path.commonpath([left, right]) in (left, right)):
            return False
        names = ((*self._entry(left), first, second), (*self._entry(right), second, first))
        self._change(Change("exchange", names))
        return True

    def sync_directory(self, path: str) -> None:
        self._tick(path)
        self._change(Change("sync", inode=self._folder(path), directory=True))

    def lock(self, path: str) -> Lock | None:
        self._tick(path)
        inode = self._create(path) if self._find(path) is None else self._file(path)
        if inode in self._locks:
            return None
        self._locks[inode] = lock = _Lock(self, inode)
        return lock

    def locked(self, path: str) -> bool:
        self._tick(path)
        return self._find(path) in self._locks

    def holder(self, path: str) -> str | None:
        self._tick(path)
        return self.busy.get(path) if self._find(path) is not None else None

    def adopt(self, path: str, model: str, *, permissions: bool = False, times: bool = False) -> bool:
        self._tick(path)  # there is one user here, and no time
        return True

    def now(self) -> float:
        return 0.0

    def process(self, pid: int | None = None) -> Mapping[str, Any]:
        return {"boot": self._boot}

    def lives(self, process: Mapping[str, Any]) -> bool | None:
        return process.get("boot") == self._boot

    # Internals

    def written(self, path: str, inode: int, data: Chunk, offset: int) -> int:
        view = as_view(data)
        if self._due() and self._failure is Failure.SHORT:
            view = view[: len(view) // 2 or 1]
            self.failed, self._failure = True, None
            self._fail_at = -1
        self._tick(path)
        self._change(Change("write", inode=inode, offset=offset, data=bytes(view)))
        return len(view)

    def truncated(self, path: str, inode: int, size: int) -> None:
        self._tick(path)
        self._change(Change("truncate", inode=inode, offset=size))

    def synced(self, path: str, inode: int) -> None:
        self._tick(path)
        self._change(Change("sync", inode=inode))

    def unlock(self, inode: int) -> None:
        self._locks.pop(inode, None)

    def _due(self) -> bool:
        return self.ticks == self._fail_at

    def _tick(self, path: str) -> None:
        if self._meanwhile is not None and self.ticks >= self._meanwhile[0]:
            act, self._meanwhile = self._meanwhile[1], None
            act()
        due = self._due()
        self.ticks += 1
        if due and self._failure is not Failure.SHORT:
            self.failed = True
            if self._failure is None:
                raise Interrupted
            raise _error(errno.EIO if self._failure is Failure.EIO else errno.ENOSPC, path)

    def _change(self, change: Change) -> None:
        self._state.apply(change)
        self.trace.append(change)

    def _create(self, path: str) -> int:
        entry = self._entry(path)
        inode, self._next = self._next, self._next + 1
        self._change(Change("create", ((*entry, None, inode),), inode))
        return inode

    def _make_folders(self, path: str) -> int:
        inode = ROOT
        for part in path.strip("/").split("/"):
            if part and part not in self._state.folders[inode]:
                for state in (self._start, self._state):
                    state.folders[inode][part] = self._next
                    state.folders[self._next] = {}
                self._next += 1
            inode = self._state.folders[inode][part] if part else inode
        return inode

    def _find(self, path: str) -> int | None:
        inode: int | None = ROOT
        for part in path.strip("/").split("/"):
            if part:
                inode = self._state.folders.get(inode, {}).get(part) if inode is not None else None
        return inode

    def _there(self, path: str) -> int:
        inode = self._find(path)
        if inode is None:
            above = os.path.dirname(path)
            while self._find(above) is None:
                above = os.path.dirname(above)
            raise _error(errno.ENOTDIR if self._find(above) in self._state.contents else errno.ENOENT, path)
        return inode

    def _folder(self, path: str) -> int:
        inode = self._there(path)
        if inode not in self._state.folders:
            raise _error(errno.ENOTDIR, path)
        return inode

    def _file(self, path: str) -> int:
        inode = self._there(path)
        if inode in self._state.folders:
            raise _error(errno.EISDIR, path)
        return inode

    def _entry(self, path: str) -> tuple[int, str]:
        return self._folder(os.path.dirname(path)), os.path.basename(path)

    def _item(self, name: str, inode: int) -> Item:
        data = self._state.contents.get(inode)
        return Item(name, True, 0) if data is None else Item(name, False, len(data))


class _Open:
    """`OpenFile` on an inode. It keeps working when the name is changed or removed."""

    def __init__(self, files: MemoryFileSystem, path: str, inode: int) -> None:
        self._files, self._path, self._inode = files, path, inode

    def pwrite(self, data: Chunk, offset: int) -> int:
        return self._files.written(self._path, self._inode, data, offset)

    def truncate(self, size: int) -> None:
        self._files.truncated(self._path, self._inode, size)

    def sync(self) -> None:
        self._files.synced(self._path, self._inode)

    def close(self) -> None:
        pass


class _Lock:
    def __init__(self, files: MemoryFileSystem, inode: int) -> None:
        self._files, self._inode = files, inode

    def release(self) -> None:
        self._files.unlock(self._inode)


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


def _walk(state: _State, inode: int, prefix: str) -> Iterator[tuple[str, bytes | None]]:
    for name, child in sorted(state.folders[inode].items()):
        data = state.contents.get(child)
        yield prefix + name, None if data is None else bytes(data)
        if data is None:
            yield from _walk(state, child, f"{prefix}{name}/")


def _crashed(start: _State, trace: list[Change], kept: Kept, rng: random.Random) -> _State:
    now, disk = start.copy(), start.copy()
    pending: list[Change] = []
    for change in trace:
        now.apply(change)
        if change.names:
            pending.append(change)
            # A new name refers to an inode at once, which is empty until it is synced.
            if change.kind == "mkdir":
                disk.folders.setdefault(change.inode, {})
            elif change.kind == "create":
                disk.contents.setdefault(change.inode, bytearray())
        elif change.kind == "sync" and change.directory:
            touched = [any(folder == change.inode for folder, *_ in item.names) for item in pending]
            pending = _settle(disk, pending, touched)
        elif change.kind == "sync":
            disk.contents[change.inode] = bytearray(now.contents[change.inode])
    if kept in (Kept.ALL, Kept.NAMES):
        _settle(disk, pending, [True] * len(pending))
    elif kept is Kept.SOME:
        _settle(disk, pending, [rng.random() < 0.5 for _ in pending])
    for inode, data in now.contents.items():
        if kept in (Kept.ALL, Kept.DATA):
            disk.contents[inode] = bytearray(data)
        elif kept is Kept.SOME:
            disk.contents[inode] = _torn(disk.contents.get(inode, bytearray()), data, rng)
    return disk


def _settle(disk: _State, pending: list[Change], chosen: list[bool]) -> list[Change]:
    """Apply the selected changes, and earlier ones of the same names, to the disk. Returns the others."""
    settled: set[tuple[int, str]] = set()
    chosen = list(chosen)
    for at in reversed(range(len(pending))):
        names = {(folder, name) for folder, name, _, _ in pending[at].names}
        chosen[at] = chosen[at] or bool(names & settled)
        if chosen[at]:
            settled |= names
    for change, take in zip(pending, chosen, strict=True):
        if take:
            for folder, name, _, after in change.names:
                if after is None:
                    disk.folders.setdefault(folder, {}).pop(name, None)
                else:
                    disk.folders.setdefault(folder, {})[name] = after
    return [change for change, take in zip(pending, chosen, strict=True) if not take]


def _torn(synced: bytearray, data: bytearray, rng: random.Random) -> bytearray:
    """Return a file with partly written unsynced data: the old content, the new one, a prefix of it, or zeros of its size."""
    choice = rng.randrange(4)
    if choice == 0:
        return bytearray(synced)
    if choice == 1:
        return bytearray(data)
    if choice == 2:
        shortest = min(len(synced), len(data))
        return bytearray(data[: rng.randint(shortest, max(shortest, len(data)))])
    return bytearray(synced[: len(data)]) + bytearray(max(0, len(data) - len(synced)))
