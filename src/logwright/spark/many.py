"""Repair many directories, independent of Spark: the list of work, one unit of work, and the combined report.

A unit may be done twice, by a retried or speculative task, and any task may die at any time. So each attempt writes to its own folder in a
staging directory that the system ignores, and a single rename gives the result its final name. An attempt that finds the name taken by an
equal result of another attempt counts as done.
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

from logwright.codec import plural
from logwright.codec.fault import BusyError, ExistsError, LogwrightError, StorageError, UsageError
from logwright.codec.layout import Layout
from logwright.codec.option import Options
from logwright.readers.paths import expand
from logwright.readers.replicas import choose_replicas, copies_of
from logwright.readers.report import Report
from logwright.readers.resolve import directories_of_stores, resolve
from logwright.readers.source import is_remote, local_path
from logwright.readers.target import REPLICA_OPTIONS, DirectoryTarget, FileTarget, Skipped, Stores, Target
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
"""Limit of faults per directory in the report, since there may be many directories."""
MERGE = "merge"
_DONE = "done"
_SHOWN = 20


@dataclass(frozen=True)
class Item:
    """A result to write, from one directory or several replicas. `bytes` is the size of the input."""

    number: int
    name: str
    paths: tuple[str, ...]
    bytes: int


@dataclass(frozen=True)
class Todo:
    """The list of work, largest first, so that the end does not wait for a long one."""

    layout: Layout
    items: tuple[Item, ...]
    failed: tuple[Mapping[str, Any], ...] = ()
    """Failures: directories that could not be opened."""
    notes: tuple[str, ...] = ()
    stores: tuple[Stores, ...] = ()
    """Directories of stores among the paths."""


def plan(paths: Sequence[str], codec: str | None = None, replicas: str | None = None) -> Todo:
    """List the directories at some paths, or in folders at these paths.

    Raises `UsageError` for files, for directories of different layouts, and for replicas if `replicas` (first, longest or merge) is not
    set.
    """
    options = {} if replicas in (None, MERGE) else {REPLICA_OPTIONS[0].name: replicas}
    targets: dict[str, DirectoryTarget] = {}
    failed: list[Mapping[str, Any]] = []
    skipped = Skipped()
    stores: list[Stores] = []
    for path in expand(paths):
        try:
            inside = directories_of_stores(path, codec, options, skipped)
            targets_found: list[Target] = [target for each in inside for target in each.targets]
            targets_found = targets_found or resolve([path], codec, options, skipped=skipped)
        except UsageError:
            raise
        except LogwrightError as error:
            failed.append(_failed(path, [path], error))
            continue
        stores += inside
        for target in targets_found:
            if isinstance(target, FileTarget):
                raise UsageError("this is a file; only directories can be repaired here", path=target.path)
            # Two paths may lead to one directory.
            targets.setdefault(
                target.path if is_remote(target.path) else os.path.realpath(local_path(target.path)), target
            )
    for unopened in skipped.unopened:
        place = unopened.path or ""
        failed.append(_failed(place, [place], unopened))
    if not targets:
        raise LogwrightError("; ".join(str(target["error"]) for target in failed))
    layout, items = _items(list(targets.values()), replicas)
    return Todo(layout, items, tuple(failed), tuple(dict.fromkeys(skipped.notes)), tuple(stores))


def _items(targets: Sequence[DirectoryTarget], replicas: str | None) -> tuple[Layout, tuple[Item, ...]]:
    layout = targets[0].layout
    for target in targets:
        if target.layout.name != layout.name:
            raise UsageError(
                f"{targets[0].path} is {layout.name}, but {target.path} is {target.layout.name}",
                advice="Repair directories of different layouts separately",
            )
    # An unserved replica may belong to another topic of the same name.
    unserved = [target for target in targets if layout.unserved(target.directory.name)]
    chosen: Sequence[Target] = [target for target in targets if target not in unserved]
    if replicas != MERGE:
        try:
            chosen = choose_replicas(chosen)
        except UsageError as error:
            if replicas is None:
                error.advice = (
                    "Pass --replicas merge (take each frame from an undamaged replica), first or longest"
                )
            raise
    items: dict[str, Item] = {}
    for _, copies in [*copies_of(chosen), *(("", [target]) for target in unserved)]:
        size = sum(entry.size for copy in copies for entry in copy.directory.entries())
        item = Item(0, copies[0].directory.name, tuple(copy.path for copy in copies), size)
        if item.name in items:
            raise UsageError(
                f"{items[item.name].paths[0]} and {item.paths[0]} would both be written to {item.name}",
                advice="Repair them separately",
            )
        items[item.name] = item
    ordered = sorted(items.values(), key=lambda item: -item.bytes)
    return layout, tuple(
        Item(number, target.name, target.paths, target.bytes) for number, target in enumerate(ordered)
    )


@dataclass(frozen=True)
class Work:
    """The settings of a repair. Can be pickled and is called with each item. `stage` is "" for a dry run."""

    to: str
    stage: str
    codec: str
    strategy: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    files: FileSystem = field(default_factory=LocalFileSystem)

    def __call__(self, item: Item) -> str:
        """Repair one item and return the result as JSON; a failure is a result too."""
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
        staged = os.path.join(place, item.name) if place else None
        try:
            with plain_errors(out):
                if staged is not None:
                    self._make(place)
                report = repair(
                    list(item.paths) if len(item.paths) > 1 else item.paths[0], staged, codec=self.codec, strategy=self.strategy,
                    dry_run=staged is None, max_faults=MAX_FAULTS, **self.options,
                )  # fmt: skip
                if staged is not None:
                    self._put(staged, out)
            result = _result(item.paths[0], item.paths, report, out if place else None)
        except LogwrightError as error:
            result = _failed(item.paths[0], item.paths, error)
        except Exception as error:  # a bug must not stop the other items
            bug = LogwrightError(
                f"internal error in logwright ({type(error).__name__}: {error})", path=item.paths[0]
            )
            result = _failed(item.paths[0], item.paths, bug)
        return json.dumps(result, default=_plain)

    def _make(self, place: str) -> None:
        if self.files.stat(self.stage) is None:
            raise StorageError(
                "the staging directory of the job does not exist here",
                path=self.stage,
                advice="The driver and all tasks must see the same directories under the same paths: use a file system that all "
                "nodes mount",
            )
        self.files.mkdir(place)
        self.files.adopt(place, self.to)

    def _put(self, staged: str, out: str) -> None:
        try:
            self.files.rename_new(staged, out)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            # It did not exist when the job began, so another attempt was faster. Equal input gives equal output.
            if sizes(self.files, staged) != sizes(self.files, out):
                raise ExistsError("it was created by another process during the repair", path=out) from None
        self.files.sync_directory(self.to)

    def _keep(self, done: str, text: str) -> None:
        """Save the result for other attempts, and for a restart of the job."""
        part = f"{done}.{secrets.token_hex(4)}"
        with contextlib.suppress(OSError):
            put_file(self.files, part, text.encode())
            self.files.rename(part, done)

    # The job as a whole

    def results(self) -> dict[int, str]:
        """Return the results so far, by number of the item."""
        if not self.stage:
            return {}
        folder = os.path.join(self.stage, _DONE)
        names = [item.name for item in self.files.listdir(folder) if item.name.endswith(".json")]
        return {int(name[:-5]): self.files.read(os.path.join(folder, name)).decode() for name in names}

    def end(self) -> None:
        """Remove the staging directory. The next job removes what remains."""
        if self.stage:
            with contextlib.suppress(OSError):
                remove_tree(self.files, self.stage)
                self.files.sync_directory(self.to)


def begin(
    todo: Todo, to: str, strategy: str | None, options: Mapping[str, Any], *, skip_existing: bool = False
) -> tuple[Work, list[Item]]:
    """Check the target directory and make the staging directory in it. Return the work and the items to do.

    Raises `ExistsError` if a result exists and `skip_existing` is false, and `BusyError` if the system or another such job is running.
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
                f"{', '.join(existing[:4])}{more} already exist",
                path=to,
                advice="Use another directory, or pass --skip-existing to keep these and write the others",
            )
        stage = os.path.join(to, todo.layout.staging(todo.items[0].name, secrets.token_hex(16)))
        files.mkdir(stage)
        files.adopt(stage, to)
        claim(files, stage)
        files.mkdir(os.path.join(stage, _DONE))
        work = Work(to, stage, todo.layout.name, strategy, dict(options), files)
        return work, [item for item in todo.items if item.name not in there]


def _sweep(files: FileSystem, to: str) -> None:
    """Remove what a killed job left. Raises `BusyError` if a job is running."""
    for item in files.listdir(to):
        place = os.path.join(to, item.name)
        if not item.directory or files.stat(os.path.join(place, OWNER)) is None:
            continue
        if files.stat(os.path.join(place, _DONE)) is None:
            continue  # another kind of staging directory
        if claimed(files, place):
            raise BusyError(
                "another repair job is writing there",
                path=to,
                advice="Wait for it, or use another directory",
            )
        remove_tree(files, place)


# The files beside the stores


def own_files(
    todo: Todo, to: str | None, results: Iterable[Mapping[str, Any]], files: FileSystem | None = None
) -> list[str]:
    """Copy the own files of a log directory beside the results, as `logwright repair` does. With `to` None, only describe it.

    Returns sentences about what was done.
    """
    known = [stores for stores in todo.stores if stores.container is not None]
    if not known:
        return []
    if len(known) > 1 or len(todo.stores) > 1:
        names = ", ".join(stores.path for stores in known[:4])
        return [
            f"the files beside the stores of {names} are not copied, since the results of several directories are in one folder; run the "
            "job once per directory to get complete ones"
        ]
    stores, container = known[0], known[0].container
    assert container is not None
    parts = []
    for result in results:
        part = Report(str(result["path"]))
        part.error = result["error"]
        if part.error is None:
            part.changed, part.ids, part.result_files = (
                result["changed"],
                result["ids"],
                result["result_files"],
            )
        parts.append(part)
    contents, notes = repaired_own_files(stores, container, parts)
    if to is None:
        return notes
    files = files or LocalFileSystem()
    real = files.real(local_path(to))
    with plain_errors(to):
        existing = [name for name in contents if files.stat(os.path.join(real, name)) is not None]
        copied = write_own_files(
            files, stores, {name: result for name, result in contents.items() if name not in existing}, real
        )
    if existing:
        notes.append(f"kept, because they already exist: {', '.join(existing)}")
    if copied:
        notes.append(f"copied unchanged: {', '.join(copied)}")
    return notes


# Results


def _result(path: str, paths: Sequence[str], report: Report, out: str | None) -> dict[str, Any]:
    return {
        "path": path, "paths": list(paths), "out": out, "error": None, "incomplete": report.incomplete, "notes": report.notes,
        "rows_lost": report.rows_lost if report.loss_known else None,
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
    """Return the result of an item whose task died on every attempt."""
    lines = [line.strip() for line in why.splitlines() if line.strip()]
    error = StorageError(
        f"its task died on every attempt: {lines[0] if lines else 'no reason given'}",
        path=item.paths[0],
    )
    return json.dumps(_failed(item.paths[0], item.paths, error))


def _plain(value: Any) -> Any:
    """Convert NumPy numbers to Python numbers."""
    return value.item() if hasattr(value, "item") else str(value)


_SUMS = ("bytes", "bytes_damaged", "frames", "rows", "faults_total")


def merge(
    paths: Sequence[str], todo: Todo, results: Iterable[Mapping[str, Any]], skipped: Sequence[Item] = ()
) -> dict[str, Any]:
    """Combine all reports: like that of one directory, with paths instead of names, and `targets` with an entry for each."""
    done = sorted([*results, *todo.failed], key=lambda result: str(result["path"]))
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
    for result in done:
        target = {name: result[name] for name in ("path", "paths", "out", "error", "incomplete")}
        report = result["report"]
        merged["incomplete"] |= result["incomplete"]
        merged["failed"] += result["error"] is not None
        if report is None:
            merged["ok"] = False
        else:
            target |= {name: report[name] for name in ("ok", "live", *_SUMS)}
            target |= {"cuts": len(report["cut"] or ()), "rows_lost": result["rows_lost"]}
            merged["ok"] &= report["ok"]
            for name in _SUMS:
                merged[name] += report[name]
            merged["files"] += [
                {**file, "path": _inside(result["path"], file["path"])} for file in report["files"]
            ]
            for name in ("kept", "cut"):
                merged[name] += [
                    {**entry, "file": _inside(entry.get("copy", result["path"]), entry["file"])}
                    for entry in report[name] or ()
                ]
        merged["targets"].append(target)
        # Notes that apply to all are added once.
        merged["notes"] += [
            note
            for note in result["notes"]
            if note.startswith("before starting") and note not in merged["notes"]
        ]
    merged["targets"] += [
        {
            "path": result.paths[0],
            "paths": list(result.paths),
            "out": None,
            "error": None,
            "incomplete": False,
            "skipped": True,
        }
        for result in skipped
    ]
    return merged


def _inside(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}" if name else path


def text(merged: Mapping[str, Any], next_: str = "") -> str:
    """Return a text for an operator: a summary, the problems, and the next command."""
    targets = merged["targets"]
    failed = [target for target in targets if target["error"] is not None]
    skipped = [target for target in targets if target.get("skipped")]
    repaired = [
        target
        for target in targets
        if target["error"] is None and (target.get("cuts") or not target.get("ok", True))
    ]
    undamaged = len(targets) - len(failed) - len(skipped) - len(repaired)
    lost = [target.get("rows_lost") for target in repaired]
    rows = f"{plural.count(sum(rows or 0 for rows in lost), 'row')} lost{', and an unknown number more' if None in lost else ''}"
    head = f"repair  {plural.count(len(targets), 'directory')}: {undamaged:,} undamaged, {len(repaired):,} repaired, {len(failed):,} failed"
    lines = [
        head + (f", {len(skipped):,} skipped (existing)" if skipped else ""),
        f"  {plural.count(merged['rows'], 'row')} kept, {rows}",
    ]
    for target in sorted(repaired, key=lambda target: -(target["rows_lost"] or 0))[:_SHOWN]:
        loss = (
            "unknown number of rows lost"
            if target["rows_lost"] is None
            else f"{plural.count(target['rows_lost'], 'row')} lost"
        )
        lines.append(
            f"  repaired  {target['path']}: {loss}, {target['bytes_damaged']:,} of {plural.count(target['bytes'], 'byte')} damaged"
        )
    if len(repaired) > _SHOWN:
        lines.append(f"  and {len(repaired) - _SHOWN:,} more")
    lines += [f"  FAILED  {target['error']}" for target in failed[:_SHOWN]]
    if len(failed) > _SHOWN:
        lines.append(f"  and {len(failed) - _SHOWN:,} more failures")
    lines += [f"  {note}" for note in merged["notes"]]
    return "\n".join([*lines, *([f"  {next_}"] if next_ else [])])


def status(merged: Mapping[str, Any]) -> int:
    """Return the exit status: 1 if a repair failed, 3 if something is lost."""
    return 1 if merged["failed"] else 3 if merged["incomplete"] else 0


def options_of(words: Iterable[str]) -> dict[str, str]:
    """Parse `["segment.bytes=1m"]` into a mapping."""
    out: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise UsageError(f"invalid option {word!r}; expected NAME=VALUE")
        out[name] = value
    return out


def check_replicas(choice: str | None) -> str | None:
    """Return a valid value of --replicas. Raises `UsageError`."""
    if choice is None or str(choice).lower() == MERGE:
        return None if choice is None else MERGE
    chosen: str = Options(REPLICA_OPTIONS, {REPLICA_OPTIONS[0].name: choice})[REPLICA_OPTIONS[0].name]
    return chosen
