"""Compare two files or directories: rows of a view, frames, fields of frames, or files.

Bytes that are equal at the start and at the end of both files are not decoded, except to count rows.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np

from logwright.codec import registry
from logwright.codec.fault import UsageError, did_you_mean
from logwright.codec.store.listing import PlannedFile
from logwright.readers.compare import Pairs, changed
from logwright.readers.diff_fields import Opened, Span, fields
from logwright.readers.diff_frames import FRAME, KINDS, pairs, same_bytes
from logwright.readers.diff_rows import DiffOptions, Loose, Rows
from logwright.readers.difference import Difference, row_of
from logwright.readers.source import open_source
from logwright.readers.target import DirectoryTarget, FileTarget, Target, kind
from logwright.readers.task import codec_options

BY = ("rows", "frames", "fields", "files")


def by_of(name: str) -> str:
    """Return a valid unit of comparison. Raises `UsageError`."""
    if name in BY:
        return name
    raise UsageError(f"cannot compare by {name!r}", advice=did_you_mean(name, BY))


def diff(a: Target | Loose, b: Target | Loose, options: DiffOptions) -> Difference:
    """Compare two targets. Raises `UsageError` if they cannot be compared."""
    if isinstance(a, Loose) or isinstance(b, Loose):
        if options.by != "rows":
            raise UsageError(
                f"a table file has rows only and cannot be compared by {options.by}", advice="Compare by rows"
            )
        return Rows(a, b, options).run()
    if options.by == "rows":
        return Rows(a, b, options).run()
    for name in ("view", "columns", "filter"):
        if getattr(options, name) is not None:
            raise UsageError(f"{name} applies only when comparing by rows, not by {options.by}")
    if options.by == "files" and isinstance(a, DirectoryTarget) == isinstance(b, DirectoryTarget):
        return _files(a, b, options)
    if kind(a) != kind(b):
        raise UsageError(
            f"{a.path} is {kind(a)}, but {b.path} is {kind(b)}: they cannot be compared by {options.by}",
            advice="Compare the rows of formats of one system with by='rows' (--by rows)",
        )
    return _Frames(a, b, options).run()


# Frames and fields


class _Frames:
    def __init__(self, a: Target, b: Target, options: DiffOptions) -> None:
        self.options = options
        self.targets = a, b
        self.result = Difference(a.path, b.path, options.by, kind(a))

    def run(self) -> Difference:
        a, b = self.targets
        if isinstance(a, FileTarget) and isinstance(b, FileTarget):
            self._file(_opened(a), _opened(b), a.path, b.path, "")
            return self.result
        assert isinstance(a, DirectoryTarget)
        assert isinstance(b, DirectoryTarget)
        left, right = ({file.name: file for file in target.plan.files} for target in (a, b))
        for name in [*left, *(target for target in right if target not in left)]:
            mine, other = left.get(name), right.get(name)
            if mine is None or other is None or mine.codec != other.codec or mine.codec is None:
                self._bytes_only(name, mine, other)
                continue
            self._file(
                _inside(a, mine), _inside(b, other), a.directory.shown(name), b.directory.shown(name), name
            )  # fmt: skip
        return self.result

    def _bytes_only(self, name: str, mine: PlannedFile | None, other: PlannedFile | None) -> None:
        """Compare a file that only one side has, or that has no codec."""
        if mine is not None and other is not None:
            a, b = self.targets
            assert isinstance(a, DirectoryTarget)
            assert isinstance(b, DirectoryTarget)
            with a.directory.open(name) as planned, b.directory.open(name) as two:
                if planned.size == two.size and same_bytes(planned, two).identical:
                    return
        sides = {
            side: {"file": name, "size": planned.size}
            for side, planned in (("a", mine), ("b", other))
            if planned is not None
        }
        change = "changed" if len(sides) == 2 else "removed" if "a" in sides else "added"
        self._add({"kind": change, "id": {"file": name}, **sides})
        self.result.counts[change] += 1

    def _add(self, difference: dict[str, Any]) -> None:
        if len(self.result.differences) < max(self.options.limit, 1):
            self.result.differences.append(difference)

    def _file(self, a: Opened, b: Opened, path_a: str, path_b: str, name: str) -> None:
        with ExitStack() as stack:
            for file in (a, b):
                stack.enter_context(file.source)
            for matched in pairs(a, b):
                self._some(matched, a, b, path_a, path_b, name)

    def _some(self, matched: Pairs, a: Opened, b: Opened, path_a: str, path_b: str, name: str) -> None:
        counts = self.result.counts
        counts["a"] += len(matched.a)
        counts["b"] += len(matched.b)
        mask = changed(matched, ("digest",)).get("digest", np.zeros(len(matched.ia), np.bool_))
        alone_a, alone_b = matched.ib < 0, matched.ia < 0
        for change, which in (("changed", mask), ("removed", alone_a), ("added", alone_b)):
            counts[change] += int(which.sum())
        counts["same"] += len(matched.ia) - int((mask | alone_a | alone_b).sum())
        for i in np.flatnonzero(mask | alone_a | alone_b).tolist():
            if len(self.result.differences) >= max(self.options.limit, 1):
                return
            self._one(matched, i, (a, b), (path_a, path_b), name)

    def _one(
        self, matched: Pairs, i: int, files: tuple[Opened, Opened], paths: tuple[str, str], name: str
    ) -> None:
        ids: dict[str, Any] = {"file": name} if name else {}
        sides: dict[str, dict[str, Any]] = {}
        spans: list[Span | None] = []
        first = None
        for side, batch, at, file, path in (
            ("a", matched.a, int(matched.ia[i]), files[0], paths[0]), ("b", matched.b, int(matched.ib[i]), files[1], paths[1]),
        ):  # fmt: skip
            if at < 0:
                spans.append(None)
                continue
            row = row_of(batch, at)
            first = first or row
            sides[side] = {
                "file": name or path, "path": path, "offset": row["start"], "length": row["stop"] - row["start"],
                "what": KINDS[row["kind"]],
            }  # fmt: skip
            spans.append(Span(file, row["start"], row["stop"], row["kind"] == FRAME))
        assert first is not None
        codec = files[0].codec
        if codec.ordered is not None and first["kind"] == FRAME:
            ids[codec.ordered] = first["id"]
        else:
            ids["at"] = first["start"]
        change = "changed" if len(sides) == 2 else "removed" if "a" in sides else "added"
        differing = []
        if spans[0] is not None and spans[1] is not None:
            differing = [field.to_dict() for field in fields(spans[0], spans[1])]
        if self.options.by == "fields" and len(differing) > 1:
            for field in differing:
                self._add({"kind": change, "id": ids, **sides, "fields": [field]})
            return
        self._add({"kind": change, "id": ids, **sides, "fields": differing})


def _opened(target: FileTarget) -> Opened:
    codec = target.codec
    return Opened(target.open(), codec, target.name, codec_options(codec, target.options), target.hints)


def _inside(target: DirectoryTarget, file: PlannedFile) -> Opened:
    codec = registry.get(str(file.codec))
    options = codec_options(codec, target.options)
    return Opened(target.directory.open(file.name), codec, file.name, options, target.hints(file.hints))


# Files


def _files(a: Target, b: Target, options: DiffOptions) -> Difference:
    result = Difference(a.path, b.path, "files", kind(a))
    if isinstance(a, DirectoryTarget) and isinstance(b, DirectoryTarget):
        left, right = ({file.name: file.size for file in target.plan.files} for target in (a, b))
        names = [*left, *(name for name in right if name not in left)]
        places = [(name, a.directory.real(name), b.directory.real(name)) for name in names]
    else:
        left, right = {"": 0}, {"": 0}
        places = [("", a.path, b.path)]
    counts = result.counts
    counts["a"], counts["b"] = len(left), len(right)
    for name, path_a, path_b in places:
        difference = _file(name, path_a if name in left else None, path_b if name in right else None)
        counts[difference["kind"] if difference is not None else "same"] += 1
        if difference is not None and len(result.differences) < max(options.limit, 1):
            result.differences.append(difference)
    return result


def _file(name: str, a: str | None, b: str | None) -> dict[str, Any] | None:
    with ExitStack() as stack:
        sources = [None if path is None else stack.enter_context(open_source(path)) for path in (a, b)]
        shown = {
            side: {"file": name or source.path, "path": source.path, "size": source.size}
            for side, source in zip(("a", "b"), sources, strict=True)
            if source is not None
        }
        ids = {"file": name or str(a)}
        if sources[0] is None or sources[1] is None:
            return {"kind": "added" if sources[0] is None else "removed", "id": ids, **shown}
        same = same_bytes(sources[0], sources[1])
        if same.identical:
            return None
        return {"kind": "changed", "id": ids, "first_byte": same.head, **shown}
