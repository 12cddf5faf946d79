"""The verbs in Python. The command line and Spark call these; an option exists once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from logwright.codec import registry
from logwright.codec.fault import UsageError
from logwright.codec.option import Verb, flag, number, word
from logwright.readers import inspect as _inspect
from logwright.readers import resolve
from logwright.readers import verify as _verify
from logwright.readers.filter import Given
from logwright.readers.report import Report
from logwright.readers.report_data import MAX_FAULTS
from logwright.readers.resolve import Path
from logwright.readers.startup import predict_start
from logwright.scanning import Paths, codec_of, shown

if TYPE_CHECKING:
    from logwright.corpora.damage import Damaged
    from logwright.corpora.generate import Generated
    from logwright.explanation import Explanation
    from logwright.readers.difference import Difference
    from logwright.roundtrip.check import Roundtrip
    from logwright.writers.write import Written

Operations = str | Mapping[str, Any] | Iterable[str | Mapping[str, Any]]


def write(
    data: Any,
    path: Path,
    codec: str,
    *,
    frames: Any = None,
    file: Any = None,
    mode: str = "error",
    **options: Any,
) -> Written:
    """Write rows as the system itself would have: a file, or a directory with every file that belongs to it.

    `data`: anything with an Arrow stream (pyarrow, pandas, Polars, DuckDB), a list of dicts, or an iterator of record batches,
    which is never held as a whole for a directory. `codec` names the codec or layout. `mode`: "error" wants nothing there,
    "append" adds to a directory, "overwrite" replaces a file, or a directory of the same layout. `frames` and `file`: the
    other two tables of a codec, to write the same bytes again. Further options are the codec's or layout's own.

    The target is written whole or not at all, whatever happens. Raises `LogwrightError`: `ExistsError`, `BusyError` (the system
    runs, or another writer), `UsageError`, `AccessError`, `StorageError`.
    """
    from logwright.writers.write import write as _write

    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"a path is text, not {path!r}")
    if not os.fspath(path):
        raise UsageError("the path is empty")
    if word("codec", codec) is None:
        raise UsageError("codec says what is written", advice="Name one, like codec='kafka.partition'")
    return _write(data, path, codec, frames=frames, file=file, mode=mode, **options)


def convert(
    source: Path,
    target: Path,
    codec: str | None = None,
    *,
    view: str | None = None,
    columns: Sequence[str] | str | None = None,
    filter: Given = None,
    limit: int | None = None,
    mode: str = "FAILFAST",
    as_system: str | None = None,
    clean: bool | None = None,
    if_exists: str = "error",
    rows_only: bool = False,
    jobs: int | str = 1,
    **options: Any,
) -> dict[str, Any]:
    """Native files to a table file (.parquet, .arrow), back, or to native files of another kind, compression or segment size.

    `codec`: what the native side is, where its name does not tell. `if_exists`: "error", "append" or "overwrite", as `mode` of
    `write`. `rows_only`: of a file one table file of rows, without the two that hold what the same bytes need on top. The other
    arguments say what is read and by how many processes, as for `scan`; further options are those of the native side.

    Returns `{"files": [...], "rows": n, "report": the report of the reading or None, "written": Written or None}`. Raises
    `LogwrightError` as `scan` and `write` do.
    """
    from logwright.conversion import convert as _convert

    return _convert(
        os.fspath(source), os.fspath(target), codec, view=view, columns=columns, filter=filter, limit=limit, mode=mode,
        if_exists=if_exists, rows_only=rows_only, as_system=as_system, clean=clean, jobs=number("jobs", jobs, 1), **options,
    )  # fmt: skip


def generate(
    codec: str,
    path: Path,
    *,
    rows: int | str = 1000,
    seed: int | str = 0,
    recipe: str | None = None,
    **options: Any,
) -> Generated:
    """Make a corpus: a new file or directory of so many rows, by recipe and seed, and beside it a manifest and the rows that
    must be read from it (`path.manifest.json`, `path.expected.jsonl`).

    The same recipe, seed, options and version give the same bytes (compressed: the same content). `recipes(codec)` in
    `logwright.corpora.generate` lists the recipes. Further options are the recipe's own, and the writer's.

    Raises `ExistsError` when any of it is there already, `UsageError` for a recipe or option that there is not.
    """
    from logwright.corpora.generate import generate as _generate

    return _generate(codec, path, rows=rows, seed=seed, recipe=recipe, **options)


def verify(
    path: Paths,
    codec: str | None = None,
    *,
    depth: str = "records",
    as_system: str | bool | None = None,
    clean: bool | None = None,
    jobs: int | str = 1,
    max_faults: int = MAX_FAULTS,
    recursive: bool = False,
    show: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Report:
    """Check files and directories: what is damaged, where, and what is lost. Never raises for damage.

    A directory that is none that we know itself stands for all those in it (a broker's log directory for its partitions).
    `recursive`: also check the stores in all sub-folders; without it the report's `notes` name those that were not looked at.
    `depth`: "structure" (lengths and what headers say), "checksums", or "records" (everything is decoded). `as_system`: what the
    real system would do with it, of this version (True: the newest known), in `report["system"]`, or for several things in each
    of `report["targets"]`; without it that is told of what is damaged only. `clean`: whether the last stop was a clean one; None:
    the system's own marker says. `jobs`: so many processes share the work. `show` is told of the progress: bytes done, and of how
    many.
    """
    settings = _verify.VerifyOptions(
        _verify.Depth.of(depth),
        ("" if as_system is True else str(as_system)) if as_system not in (None, False) else None,
        flag("clean", clean),
        number("max_faults", max_faults),
    )
    passed: list[str] = []
    deep = bool(flag("recursive", recursive))
    targets = resolve.resolve(path, codec, options, passed=passed, recursive=deep, verb=Verb.VERIFY)
    # What lies there alone is called by its own path: the next command to type takes no directory above it, and no glob.
    here = targets[0].path if len(targets) == 1 else shown(path)
    report = Report(here, codec_of(targets), max_faults=max_faults)
    report.notes += passed
    report = _verify.verify(targets, report, settings, jobs=number("jobs", jobs, 1), show=show)
    if settings.system is not None:
        verdict = predict_start(path, codec, version=settings.system or None)
        if verdict is not None:
            report.starts(verdict.to_dict())
    return report


def explain(
    path: Path,
    codec: str | None = None,
    *,
    at: int | str | None = None,
    where: Any = None,
    fault: int | str | None = None,
    limit: int | str | None = None,
    items: int | str = 1000,
    **options: Any,
) -> Explanation:
    """What the bytes mean: every one of them, as a tree of fields, also inside of what is compressed.

    `at`: a byte of the file; `"@73400381+31"` is byte 31 of what is packed at 73400381. `where`: rows, as
    `{"offset": 4183220}`, "key=user-7", or any filter of `scan`; of a directory, its default view says where to look. `fault`: a
    number, from 1 on, in the list of faults of `verify`. Without any of them, the file from its start. `limit`: so many frames, or
    rows, at most. `items`: so many of a list within a frame are shown one by one, and those asked for.

    Raises `NotFoundError` where there is no such row or fault, `UsageError`. Damage never raises: it is explained.
    """
    from logwright.explanation import Explanation
    from logwright.readers.explain import ExplainOptions
    from logwright.readers.explain import explain as _explain

    settings = ExplainOptions(
        at,
        where,
        None if fault is None else number("fault", fault),
        None if limit is None else number("limit", limit, 1),
        number("items", items, 1),
    )
    targets = resolve.resolve(path, codec, options, verb=Verb.EXPLAIN)
    if len(targets) > 1:
        raise UsageError(f"{len(targets)} files or directories are given", advice="Explain them one by one")
    return Explanation(_explain(targets[0], settings, Report(shown(path), codec_of(targets))))


def diff(
    a: Path,
    b: Path,
    codec: str | None = None,
    *,
    by: str = "rows",
    view: str | None = None,
    columns: Sequence[str] | str | None = None,
    filter: Given = None,
    key: Sequence[str] | str | None = None,
    mode: str = "FAILFAST",
    limit: int | str = 10,
    **options: Any,
) -> Difference:
    """How two files, or two directories, differ; `.equal` says whether they do.

    `by`: "rows" compares what a view shows, wherever it lies in the files: rows of the same key are next to each other where the view has
    one (the offset of a record, the key of a LevelDB database), else the first of one with the first of the other. `key` names other
    columns, in whose order the rows come; () is none. "frames" compares what lies in the files, frame by frame, and tells the fields in
    which they differ, "fields" each such field as a difference of its own; "files" compares names, sizes and bytes. `columns`, `filter`,
    `view` and `mode` as for `scan`, by rows only. One side, or both, may be a table file (Parquet, Arrow, JSON lines). `limit`: so many
    differences are told in full; the counts are of all.

    The first difference is told to the byte: which row, which columns, both values, and in each file which frame and field.

    Raises `UsageError` for what can't be compared, and what reading raises.
    """
    from logwright.comparison import diff as _diff

    return _diff(
        a, b, codec, by=by, view=view, columns=columns, filter=filter, key=key, mode=mode, limit=limit, **options
    )  # fmt: skip


def repair(
    path: Paths,
    out: Path | None = None,
    *,
    codec: str | None = None,
    strategy: str | None = None,
    in_place: bool = False,
    backup: Path | None = None,
    dry_run: bool = False,
    recursive: bool = False,
    max_faults: int = MAX_FAULTS,
    show: Callable[[int], None] | None = None,
    **options: Any,
) -> Report:
    """Mend a damaged directory, or a single file, and say what was kept and what was cut.

    `path`: one directory or file; several directories are replicas of one, and each frame is taken from whichever is sound.
    `strategy`: "salvage" keeps every undamaged frame, "prefix" all before the first damage, "system" what the real system would
    leave; None is "salvage", or what the layout prefers. The result goes to `out`, absent or empty, and the input stays as it is; or
    (`in_place`) the input is changed, and the originals of all files that change are saved in the directory `backup`, outside of the
    data. `dry_run` only tells what would be done. Either way the result is checked, then put in place as a whole. `show` is called
    with the bytes written so far. Further options are the layout's own.

    A directory of stores (a broker's log directory, a folder of databases) or a system's configuration file stands for all stores
    in it, with `recursive` also for those in all sub-folders. `out` and `backup` then have a directory for each store. `out` of a
    log directory is a log directory: its own files are copied, without offsets beyond the end of a repaired log. A store that
    can't be repaired does not stop the others: `report["targets"]` tells of each, and `report.failed` how many failed.

    The report has the faults of the input, then `kept`, `cut`, and in `rows` the rows of the result; `incomplete` says that
    something is lost. Raises `BusyError` where the system or another writer is at work, `ExistsError`, `UsageError`,
    `DamageError` where the result would not be sound, `StorageError`.
    """
    from logwright.writers.repair import repair
    from logwright.writers.request import Request

    request = Request(_text(out), in_place, _text(backup), dry_run, show=show or _unseen)
    return repair(
        path,
        codec,
        strategy,
        request,
        lambda targets: _report(targets, max_faults),
        options,
        bool(flag("recursive", recursive)),
    )


def rebuild(
    path: Path,
    out: Path | None = None,
    *,
    codec: str | None = None,
    what: str | Sequence[str] | None = None,
    in_place: bool = False,
    backup: Path | None = None,
    dry_run: bool = False,
    recursive: bool = False,
    max_faults: int = MAX_FAULTS,
    show: Callable[[int], None] | None = None,
    **options: Any,
) -> Report:
    """Make the derived files of a directory anew from the primary ones, as the system would have made them.

    A directory of stores or a configuration file stands for all stores in it, as for `repair`. `what`: names with commas, or a
    list; None for all that the layout can. The other arguments as for `repair`. Raises
    `DamageError` where a primary file is damaged: repair it first.
    """
    from logwright.writers.repair import rebuild
    from logwright.writers.request import Request

    request = Request(_text(out), in_place, _text(backup), dry_run, show=show or _unseen)
    return rebuild(
        path,
        codec,
        what,
        request,
        lambda targets: _report(targets, max_faults),
        options,
        bool(flag("recursive", recursive)),
    )


def edit(
    path: Path,
    out: Path | None = None,
    *,
    drop: Given = None,
    redact: Given = None,
    columns: Sequence[str] | str = ("value",),
    with_: bytes | str | None = b"",
    codec: str | None = None,
    in_place: bool = False,
    backup: Path | None = None,
    dry_run: bool = False,
    allow_no_match: bool = False,
    max_faults: int = MAX_FAULTS,
    show: Callable[[int], None] | None = None,
    **options: Any,
) -> Report:
    """Take rows out of a directory or a file, or values out of rows; all frames that they are not in stay as they are, byte for byte.

    `drop`: the rows that match this filter go: `[("key", "==", b"user-7")]`, or text, as for `scan`. `redact`: of the rows that match
    `columns` become `with_`: no bytes, others, or None for null. What was taken out is nowhere in the result: batches and blocks are packed
    anew, and indexes, filters and manifests made anew; offsets and sequence numbers stay as they are, with gaps, as compaction leaves
    them. Where the result goes, `in_place`, `backup` (which has what was taken out) and `dry_run` as for `repair`. Further options
    are the layout's own.

    A filter that matches no row is an error (`NotFoundError`), and nothing is written, unless `allow_no_match` is true.

    The report has the frames that changed in `cut`, with the number of rows that went, and in `rows` the rows of the result. Raises
    `DamageError` for what is damaged, since nobody knows what is in there, `BusyError`, `ExistsError`, `UsageError`, `StorageError`.
    """
    from logwright.writers.edit import Rows
    from logwright.writers.edit import edit as _edit
    from logwright.writers.request import Request

    request = Request(_text(out), in_place, _text(backup), dry_run, show=show or _unseen)
    return _edit(
        path,
        codec,
        lambda table: Rows(
            table, drop, redact, columns, with_, allow_no_match=bool(flag("allow_no_match", allow_no_match))
        ),
        request,
        lambda targets: _report(targets, max_faults),
        options,
    )


def damage(
    path: Path,
    out: Path,
    op: Operations = (),
    *,
    codec: str | None = None,
    seed: int | str = 0,
    count: int | str = 0,
    apply: Path | Mapping[str, Any] | None = None,
) -> Damaged:
    """Copy a file or a directory to `out/<its name>`, with damage on purpose, and tell of it in `out/damage.json`.

    `op`: one operation or several, as text ("flip:at=1234,bit=3") or mappings ({"op": "flip", "at": 1234, "bit": 3}), carried out
    in order; places refer to the bytes as they are when an operation runs. `logwright damage --help` lists them, and
    `logwright.corpora.damage_ops` says all of it. `count` more are chosen by chance, the same ones for the same `seed` and files.
    `apply`: do again what a damage.json says, to the same files. `out` is absent or empty; the input is only read.

    damage.json has the operations, each explicitly, sizes and SHA-256 of all files before and after, the number and the SHA-256 of
    the rows of all frames that no operation touched, what `verify` finds and what the real system would do.

    Raises `UsageError` for an operation, a field or a place that there is not, and for other files than those of damage.json;
    `ExistsError`, `NotFoundError`, `AccessError`, `StorageError`.
    """
    from logwright.corpora.damage import damage as _damage

    return _damage(path, out, op, codec=codec, seed=seed, count=count, apply=apply)


def roundtrip(
    path: Paths,
    codec: str | None = None,
    *,
    law: str | Sequence[str] | None = None,
    jobs: int | str = 1,
    **options: Any,
) -> Roundtrip:
    """Hold the laws that every codec keeps on files of your own: one file, or all files of directories.

    `law`: names with commas, or a list; None for all. decode_encode: decoded and encoded again, a file is the same bytes.
    encoded_anew: without any stored payload, it has the same rows. any_split: read in parts, the same rows.
    kernel_equals_description: the fast kernels read what the written-down structures say (slow: only the first MiB of a file,
    unless it is asked for). `jobs`: so many processes share the files; each holds 64 MiB of a file at a time, and its tables.

    A law that is broken, and damage, are in the result; `.ok` is whether there is neither. Raises what resolving a path raises.
    """
    from logwright.roundtrip.check import roundtrip as _roundtrip

    return _roundtrip(path, codec, law=law, jobs=jobs, **options)


def _unseen(done: int) -> None: ...


def _text(path: Path | None) -> str | None:
    return None if path is None else os.fspath(path)


def _report(targets: Sequence[resolve.Target], max_faults: int) -> Report:
    return Report(shown([target.path for target in targets]), codec_of(targets), max_faults=max_faults)


def inspect(
    path: Path, codec: str | None = None, *, recursive: bool = False, **options: Any
) -> dict[str, Any]:
    """What a file or a directory is, from headers alone: files, ranges of offsets and times, sizes, compression.

    Of a directory of stores, each in short. `recursive`: also those in all sub-folders; without it `notes` names them.
    """
    passed: list[str] = []
    deep = bool(flag("recursive", recursive))
    targets = resolve.resolve(path, codec, options, passed=passed, recursive=deep, verb=Verb.INSPECT)
    names = resolve.expand(path)
    directories = [target for target in targets if isinstance(target, resolve.DirectoryTarget)]
    kinds = {one.layout for one in registry.containers()}
    if len(targets) == 1 and (targets[0].path in names or resolve.kind(targets[0]) not in kinds):
        found = _inspect.inspect(targets[0])
        return {**found, "notes": [*found.get("notes", ()), *passed]}
    # The files beside the stores of a directory are not listed.
    if len(names) > 1 or not directories:
        raise UsageError(f"{len(targets)} things lie there, one can be inspected at a time", path=shown(path))
    return {**_inspect.several(shown(path), directories), "notes": passed}


def detect(path: Path) -> str | None:
    """The name of the codec of a file, or of the layout of a directory; None when it is none that we know."""
    return resolve.detect(path)
