"""Many directories mended, each by whoever has time, without Spark in it: what there is to do, one piece of it, and one report.

A piece may be done twice, by a task that is tried again or a speculative one, and any task may die at any moment. So each attempt
makes its result in a place of its own, in a staging directory that the system ignores, and a single rename puts it under its
final name. Who finds it there already finds what another attempt of the same job made of the same input.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logwright.codec.fault import BusyError, ExistsError, LogwrightError, StorageError, UsageError
from logwright.codec.layout import Layout
from logwright.codec.option import Options
from logwright.readers.copies import copies_of, one_of_each
from logwright.readers.report import Report
from logwright.readers.resolve import (
    COPIES_OPTIONS,
    DirectoryTarget,
    FileTarget,
    Stores,
    Target,
    directories_of_stores,
    expand,
    resolve,
)
from logwright.readers.source import is_remote, local_path
from logwright.writers.filesystem import (
    FileSystem,
    LocalFileSystem,
    make_above,
    plain_errors,
    put_file,
    remove_tree,
    sizes,
)
from logwright.writers.lock import claim, claimed, refuse_running
from logwright.writers.repair_stores import repaired_own_files, write_own_files
from logwright.writers.stage import OWNER
from logwright.writers.target import refuse_remote

MAX_FAULTS = 100
"""So many faults of one directory are in the report: there may be very many directories."""
MERGE = "merge"
_DONE = "done"
_SHOWN = 20


@dataclass(frozen=True)
class Item:
    """One directory to be made, of one or (replicas) several. `bytes` are those to be read."""

    number: int
    name: str
    paths: tuple[str, ...]
    bytes: int


@dataclass(frozen=True)
class Todo:
    """What there is to do: the largest first, so that the end is not a long wait for one."""

    layout: Layout
    items: tuple[Item, ...]
    failed: tuple[Mapping[str, Any], ...] = ()
    """Results of those that could not even be looked at."""
    notes: tuple[str, ...] = ()
    stores: tuple[Stores, ...] = ()
    """The directories of stores among the paths."""


def plan(paths: Sequence[str], codec: str | None = None, replicas: str | None = None) -> Todo:
    """What lies at these paths: directories, or folders full of them. Raises `UsageError` for files, for directories of different
    kinds, and for copies of one where `replicas` (first, longest or merge) says nothing."""
    options = {} if replicas in (None, MERGE) else {COPIES_OPTIONS[0].name: replicas}
    targets: dict[str, DirectoryTarget] = {}
    failed: list[Mapping[str, Any]] = []
    notes: list[str] = []
    stores: list[Stores] = []
    for path in expand(paths):
        try:
            inside = directories_of_stores(path, codec, options, notes)
            found: list[Target] = [one for each in inside for one in each.targets]
            found = found or resolve([path], codec, options, passed=notes)
        except UsageError:
            raise
        except LogwrightError as error:
            failed.append(_failed(path, [path], error))
            continue
        stores += inside
        for one in found:
            if isinstance(one, FileTarget):
                raise UsageError("this is a file, directories are mended here", path=one.path)
            # One directory may be meant by two of the paths.
            targets.setdefault(
                one.path if is_remote(one.path) else os.path.realpath(local_path(one.path)), one
            )
    if not targets:
        raise LogwrightError("; ".join(str(one["error"]) for one in failed))
    layout, items = _items(list(targets.values()), replicas)
    return Todo(layout, items, tuple(failed), tuple(dict.fromkeys(notes)), tuple(stores))


def _items(targets: Sequence[DirectoryTarget], replicas: str | None) -> tuple[Layout, tuple[Item, ...]]:
    layout = targets[0].layout
    for one in targets:
        if one.layout.name != layout.name:
            raise UsageError(
                f"{targets[0].path} is {layout.name}, {one.path} is {one.layout.name}",
                advice="Mend directories of different kinds one kind after the other",
            )
    chosen: Sequence[Target] = targets
    if replicas != MERGE:
        try:
            chosen = one_of_each(targets)
        except UsageError as error:
            if replicas is None:
                error.advice = (
                    "Say --replicas merge (each frame from whichever copy is sound), first or longest"
                )
            raise
    items: dict[str, Item] = {}
    for _, copies in copies_of(chosen):
        size = sum(entry.size for copy in copies for entry in copy.directory.entries())
        item = Item(0, copies[0].directory.name, tuple(copy.path for copy in copies), size)
        if item.name in items:
            raise UsageError(
                f"both {items[item.name].paths[0]} and {item.paths[0]} would become {item.name}",
                advice="Mend them one after the other",
            )
        items[item.name] = item
    ordered = sorted(items.values(), key=lambda item: -item.bytes)
    return layout, tuple(Item(number, one.name, one.paths, one.bytes) for number, one in enumerate(ordered))


@dataclass(frozen=True)
class Work:
    """How, and where to. Picklable; called with an item wherever there is time. `stage` is "" for a dry run."""

    to: str
    stage: str
    codec: str
    strategy: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    files: FileSystem = field(default_factory=LocalFileSystem)

    def __call__(self, item: Item) -> str:
        """Mend one; returns the result as JSON. What can't be mended is a result too."""
        if not self.stage:
            return self._try(item, "")
        done = os.path.join(self.stage, _DONE, f"{item.number}.json")
        if self.files.stat(done) is not None:
            return self.files.read(done).decode()
        place = os.path.join(self.stage, f"{item.number}-{secrets.token_hex(8)}")
        try:
            text = self._try(item, place)
            self._keep(done, text)
        finally:
            with contextlib.suppress(OSError):
                remove_tree(self.files, place)
        return text

    def _try(self, item: Item, place: str) -> str:
        from logwright.api import repair

        out = os.path.join(self.to, item.name)
        made = os.path.join(place, item.name) if place else None
        try:
            with plain_errors(out):
                if made is not None:
                    self._make(place)
                report = repair(
                    list(item.paths) if len(item.paths) > 1 else item.paths[0], made, codec=self.codec, strategy=self.strategy,
                    dry_run=made is None, max_faults=MAX_FAULTS, **self.options,
                )  # fmt: skip
                if made is not None:
                    self._put(made, out)
            result = _result(item.paths[0], item.paths, report, out if place else None)
        except LogwrightError as error:
            result = _failed(item.paths[0], item.paths, error)
        except Exception as error:  # of one, which shall not be the end of all
            said = LogwrightError(
                f"this is a mistake in logwright itself ({type(error).__name__}: {error})", path=item.paths[0]
            )
            result = _failed(item.paths[0], item.paths, said)
        return json.dumps(result, default=_plain)

    def _make(self, place: str) -> None:
        if self.files.stat(self.stage) is None:
            raise StorageError(
                "the job's staging directory is not to be seen here",
                path=self.stage,
                advice="The driver and all tasks must see the same directories under the same paths: use a file system that all "
                "nodes mount",
            )
        self.files.mkdir(place)
        self.files.adopt(place, self.to)

    def _put(self, made: str, out: str) -> None:
        try:
            self.files.rename_new(made, out)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            # It was not there when the job began: another attempt was faster. The same input gives the same output.
            if sizes(self.files, made) != sizes(self.files, out):
                raise ExistsError("it has come into being while it was being made", path=out) from None
        self.files.sync_directory(self.to)

    def _keep(self, done: str, text: str) -> None:
        """For other attempts, and for a job that breaks off."""
        part = f"{done}.{secrets.token_hex(4)}"
        with contextlib.suppress(OSError):
            put_file(self.files, part, text.encode())
            self.files.rename(part, done)

    # around all of it

    def results(self) -> dict[int, str]:
        """What has been done so far, by the number of the item."""
        if not self.stage:
            return {}
        folder = os.path.join(self.stage, _DONE)
        names = [item.name for item in self.files.listdir(folder) if item.name.endswith(".json")]
        return {int(name[:-5]): self.files.read(os.path.join(folder, name)).decode() for name in names}

    def end(self) -> None:
        """Remove the staging directory. What stays behind is removed by the next job."""
        if self.stage:
            with contextlib.suppress(OSError):
                remove_tree(self.files, self.stage)
                self.files.sync_directory(self.to)


def begin(
    todo: Todo, to: str, strategy: str | None, options: Mapping[str, Any], *, skip_existing: bool = False
) -> tuple[Work, list[Item]]:
    """Check where the results go, and make the staging directory in it. Returns the work and the items that are left to do.

    Raises `ExistsError` where something is there already and `skip_existing` is not said, `BusyError` where the system or
    another such job is at work.
    """
    refuse_remote(to)
    files = LocalFileSystem()
    with plain_errors(to):
        to = files.real(local_path(to))
        make_above(files, to)
        refuse_running(files, todo.layout, os.path.join(to, todo.items[0].name))
        _sweep(files, to)
        there = {item.name for item in files.listdir(to)}
        existing = [item.name for item in todo.items if item.name in there]
        if existing and not skip_existing:
            more = f" and {len(existing) - 4} more" if len(existing) > 4 else ""
            raise ExistsError(
                f"there are {', '.join(existing[:4])}{more} already",
                path=to,
                advice="Name another directory, or say --skip-existing to leave these as they are and make the rest",
            )
        stage = os.path.join(to, todo.layout.staging(todo.items[0].name, secrets.token_hex(16)))
        files.mkdir(stage)
        files.adopt(stage, to)
        claim(files, stage)
        files.mkdir(os.path.join(stage, _DONE))
        work = Work(to, stage, todo.layout.name, strategy, dict(options), files)
        return work, [item for item in todo.items if item.name not in there]


def _sweep(files: FileSystem, to: str) -> None:
    """Remove what a job that was killed left. Raises `BusyError` for one that runs."""
    for item in files.listdir(to):
        place = os.path.join(to, item.name)
        if not item.directory or files.stat(os.path.join(place, OWNER)) is None:
            continue
        if files.stat(os.path.join(place, _DONE)) is None:
            continue  # not of this kind
        if claimed(files, place):
            raise BusyError(
                "another repair job writes there",
                path=to,
                advice="Wait for its end, or name another directory",
            )
        remove_tree(files, place)


# The files beside the stores


def own_files(
    todo: Todo, to: str | None, results: Iterable[Mapping[str, Any]], files: FileSystem | None = None
) -> list[str]:
    """Copy the own files of a log directory beside the results, as `logwright repair` does; None: only say what would be done.

    Returns sentences on what was done."""
    known = [stores for stores in todo.stores if stores.container is not None]
    if not known:
        return []
    if len(known) > 1 or len(todo.stores) > 1:
        names = ", ".join(stores.path for stores in known[:4])
        return [
            f"the files beside the stores of {names} are not copied: the results of several directories are in one folder; run the "
            "job once for each directory to get complete ones"
        ]
    stores, container = known[0], known[0].container
    assert container is not None
    parts = []
    for one in results:
        part = Report(str(one["path"]))
        part.error = one["error"]
        if part.error is None:
            part.changed, part.ids, part.result_files = one["changed"], one["ids"], one["result_files"]
        parts.append(part)
    contents, notes = repaired_own_files(stores, container, parts)
    if to is None:
        return notes
    files = files or LocalFileSystem()
    real = files.real(local_path(to))
    with plain_errors(to):
        there = [name for name in contents if files.stat(os.path.join(real, name)) is not None]
        copied = write_own_files(
            files, stores, {name: one for name, one in contents.items() if name not in there}, real
        )
    if there:
        notes.append(f"there already, and left as they are: {', '.join(there)}")
    if copied:
        notes.append(f"copied as they are: {', '.join(copied)}")
    return notes


# Results


def _result(path: str, paths: Sequence[str], report: Report, out: str | None) -> dict[str, Any]:
    return {
        "path": path, "paths": list(paths), "out": out, "error": None, "incomplete": report.incomplete, "notes": report.notes,
        "report": report.to_dict(), "changed": report.changed, "ids": report.ids, "result_files": list(report.result_files),
    }  # fmt: skip


def _failed(path: str, paths: Sequence[str], error: LogwrightError) -> dict[str, Any]:
    return {
        "path": path,
        "paths": list(paths),
        "out": None,
        "error": str(error),
        "incomplete": True,
        "notes": [],
        "report": None,
    }


def died(item: Item, why: str) -> str:
    """The result of an item whose task ended without one, however often it was tried."""
    lines = [line.strip() for line in why.splitlines() if line.strip()]
    error = StorageError(
        f"its task died each time it was tried: {lines[0] if lines else 'no reason given'}",
        path=item.paths[0],
    )
    return json.dumps(_failed(item.paths[0], item.paths, error))


def _plain(value: Any) -> Any:
    """Numbers of NumPy as those of Python."""
    return value.item() if hasattr(value, "item") else str(value)


_SUMS = ("bytes", "bytes_damaged", "frames", "rows", "faults_total")


def merge(
    paths: Sequence[str], todo: Todo, results: Iterable[Mapping[str, Any]], skipped: Sequence[Item] = ()
) -> dict[str, Any]:
    """One report of all. As the report of one directory, with paths instead of names, and `targets`, a line for each."""
    done = sorted([*results, *todo.failed], key=lambda one: str(one["path"]))
    merged: dict[str, Any] = {
        "report": 1,
        "logwright": Report("").to_dict()["logwright"],
        "path": ", ".join(paths),
    }
    merged |= {"codec": todo.layout.name, "ok": True, "live": None, **dict.fromkeys(_SUMS, 0)}
    merged |= {
        "incomplete": False,
        "failed": 0,
        "notes": list(todo.notes),
        "targets": [],
        "files": [],
        "kept": [],
        "cut": [],
    }
    for one in done:
        target = {name: one[name] for name in ("path", "paths", "out", "error", "incomplete")}
        report = one["report"]
        merged["incomplete"] |= one["incomplete"]
        merged["failed"] += one["error"] is not None
        if report is None:
            merged["ok"] = False
        else:
            target |= {name: report[name] for name in ("ok", "live", *_SUMS)}
            lost = [cut["rows_lost"] for cut in report["cut"] or ()]
            target |= {"cuts": len(lost), "rows_lost": None if None in lost else sum(lost)}
            merged["ok"] &= report["ok"]
            for name in _SUMS:
                merged[name] += report[name]
            merged["files"] += [
                {**file, "path": _inside(one["path"], file["path"])} for file in report["files"]
            ]
            for name in ("kept", "cut"):
                merged[name] += [
                    {**each, "file": _inside(each.get("copy", one["path"]), each["file"])}
                    for each in report[name] or ()
                ]
        merged["targets"].append(target)
        # What concerns all of them is said once.
        merged["notes"] += [
            note
            for note in one["notes"]
            if note.startswith("before you start") and note not in merged["notes"]
        ]
    merged["targets"] += [
        {
            "path": one.paths[0],
            "paths": list(one.paths),
            "out": None,
            "error": None,
            "incomplete": False,
            "skipped": True,
        }
        for one in skipped
    ]
    return merged


def _inside(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}" if name else path


def text(merged: Mapping[str, Any], next_: str = "") -> str:
    """For people: one line, what is wrong, and the next command."""
    targets = merged["targets"]
    failed = [one for one in targets if one["error"] is not None]
    skipped = [one for one in targets if one.get("skipped")]
    mended = [one for one in targets if one["error"] is None and (one.get("cuts") or not one.get("ok", True))]
    sound = len(targets) - len(failed) - len(skipped) - len(mended)
    lost = [one.get("rows_lost") for one in mended]
    rows = f"{sum(one or 0 for one in lost):,} rows lost{', more where it is not known how many' if None in lost else ''}"
    head = f"repair  {len(targets):,} directories: {sound:,} sound, {len(mended):,} mended, {len(failed):,} failed"
    lines = [
        head + (f", {len(skipped):,} there already" if skipped else ""),
        f"  {merged['rows']:,} rows kept, {rows}",
    ]
    for one in sorted(mended, key=lambda one: -(one["rows_lost"] or 0))[:_SHOWN]:
        gone = (
            "rows lost, not known how many" if one["rows_lost"] is None else f"{one['rows_lost']:,} rows lost"
        )
        lines.append(
            f"  mended  {one['path']}: {gone}, {one['bytes_damaged']:,} of {one['bytes']:,} bytes damaged"
        )
    if len(mended) > _SHOWN:
        lines.append(f"  and {len(mended) - _SHOWN:,} more")
    lines += [f"  FAILED  {one['error']}" for one in failed[:_SHOWN]]
    if len(failed) > _SHOWN:
        lines.append(f"  and {len(failed) - _SHOWN:,} more that failed")
    lines += [f"  {note}" for note in merged["notes"]]
    return "\n".join([*lines, *([f"  {next_}"] if next_ else [])])


def status(merged: Mapping[str, Any]) -> int:
    """The exit status: 1 where one failed, 3 where something is lost."""
    return 1 if merged["failed"] else 3 if merged["incomplete"] else 0


def options_of(words: Iterable[str]) -> dict[str, str]:
    """`["segment.bytes=1m"]` as a mapping."""
    out: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise UsageError(f"an option is NAME=VALUE, not {word!r}")
        out[name] = value
    return out


def check_replicas(how: str | None) -> str | None:
    """Raise `UsageError` for what is no way to treat copies."""
    if how is None or str(how).lower() == MERGE:
        return None if how is None else MERGE
    chosen: str = Options(COPIES_OPTIONS, {COPIES_OPTIONS[0].name: how})[COPIES_OPTIONS[0].name]
    return chosen
