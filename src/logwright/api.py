"""The verbs as Python functions. The command line and Spark call these, so each option is implemented once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from logwright.codec import registry
from logwright.codec.fault import UsageError
from logwright.codec.option import Verb, flag, number, word
from logwright.readers import inspect as _inspect
from logwright.readers import resolve
from logwright.readers import verify as _verify
from logwright.readers import verify_file as _verify_file
from logwright.readers.contained import check_containers
from logwright.readers.filter import Conditions
from logwright.readers.paths import Path, expand, text_of
from logwright.readers.report import Report
from logwright.readers.report_data import MAX_FAULTS
from logwright.readers.startup import predict_start
from logwright.readers.target import DirectoryTarget, Skipped, Target
from logwright.readers.traceback import short_traceback
from logwright.readers.usage import suggest_parameters
from logwright.scanning import Paths, codec_of, paths_of

if TYPE_CHECKING:
    from logwright.codec.table import Table
    from logwright.corpora.generate import Generated
    from logwright.explanation import Explanation
    from logwright.writers.write import Written

Operations = str | Mapping[str, Any] | Iterable[str | Mapping[str, Any]]


@suggest_parameters
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
    """Write rows as the system itself would: a file, or a directory with all files that belong to it.

    `data`: any object with an Arrow stream (pyarrow, pandas, Polars, DuckDB), a list of dicts, or an iterator of record batches. For a
    directory, memory is bounded. `codec`: the codec or layout. `mode`: "error" refuses an existing target, "append" adds to a directory,
    "overwrite" replaces a file, or a directory of the same layout. `frames` and `file`: the other two tables of a codec; with them the
    result has the original bytes. Further options are those of the codec or layout.

    The write is atomic: the target is complete or unchanged. Raises `LogwrightError`: `ExistsError`, `BusyError` (the system is running, or
    another writer is at work), `UsageError`, `AccessError`, `StorageError`.
    """
    from logwright.writers.write import write as _write

    path = text_of(path)
    if word("codec", codec) is None:
        raise UsageError(
            "codec is missing", advice="Pass the format to write, such as codec='kafka.partition'"
        )
    return _write(data, path, codec, frames=frames, file=file, mode=mode, **options)


@suggest_parameters
def generate(
    codec: str,
    path: Path,
    *,
    rows: int | str = 1000,
    seed: int | str = 0,
    recipe: str | None = None,
    **options: Any,
) -> Generated:
    """Generate a sample file or directory of `rows` rows. `path.manifest.json` describes it; `path.expected.jsonl` holds the rows that a
    reader must return.

    The same recipe, seed, options and version give the same bytes (if compressed, the same content). `recipes(codec)` in
    `logwright.corpora.generate` lists the recipes. Further options are those of the recipe and of the writer.

    Raises `ExistsError` if any of these files exists, `UsageError` for an unknown recipe or option.
    """
    from logwright.corpora.generate import generate as _generate

    return _generate(codec, path, rows=rows, seed=seed, recipe=recipe, **options)


@suggest_parameters
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
    """Check files and directories and report what is damaged, where, and what is lost. Never raises for damage. If some of several paths
    cannot be opened, the report says so, and the others are checked.

    A directory that is not itself a store stands for all stores in it, as a broker's log directory for its partitions. `recursive`: include
    the stores in all sub-folders; without it the report's `notes` name those that were skipped. `depth`: "structure" (lengths and headers),
    "checksums" or "records" (decode everything). `as_system`: simulate the start of this version of the real system (True: the newest
    known); the verdict is in `report["system"]`, or for several stores in each of `report["targets"]`. By default only damaged stores get a
    verdict. `clean`: whether the system was stopped cleanly; None: as the system's own marker says. `jobs`: number of processes. `show` is
    called with the number of bytes done and the total.
    """
    max_faults = number("max_faults", max_faults)
    settings = _verify.VerifyOptions(
        _verify_file.Depth.of(depth),
        ("" if as_system is True else str(as_system)) if as_system not in (None, False) else None,
        flag("clean", clean),
        max_faults,
    )
    skipped = Skipped()
    deep = bool(flag("recursive", recursive))
    targets = resolve.resolve(path, codec, options, skipped=skipped, recursive=deep, verb=Verb.VERIFY)
    # A single store is named by its own path, so that the suggested command does not use a parent directory or a glob.
    here = targets[0].path if len(targets) == 1 and not skipped.unopened else paths_of(path)
    report = Report(here, codec_of(targets), max_faults=max_faults)
    report.notes += skipped.notes
    verdict = None
    places = expand(path, [])
    if settings.system is not None:
        verdict = predict_start(places, codec, version=settings.system or None)
        settings = replace(settings, container=verdict is not None)
    report = _verify.verify(
        targets, report, settings, jobs=number("jobs", jobs, 1), show=show, unopened=skipped.unopened
    )
    closed = {error.path for error in skipped.unopened}
    check_containers([place for place in places if place not in closed], targets, report)
    if settings.system is None and report.parts and not report.ok:
        # The system may refuse to start before it loads any of the damaged stores.
        verdict = predict_start(places, codec)
        verdict = None if verdict is None or verdict.opens else verdict
    if verdict is not None:
        report.starts(verdict.to_dict())
    return report


@suggest_parameters
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
    """Explain every byte as a tree of fields, including compressed data.

    `at`: a byte of the file; `"@73400381+31"` is byte 31 of the data unpacked at 73400381. `where`: rows, as `{"offset": 4183220}`,
    "key=user-7", or any filter of `scan`; in a directory they are looked up in the default view. `fault`: a fault by its number in the list
    of `verify`, from 1. Without any of these, the file from its start. `limit`: maximum number of frames or rows. `items`: maximum number
    of list items to show within a frame.

    Raises `NotFoundError` for a missing row or fault, and `UsageError`. Damage never raises; it is explained.
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
        raise UsageError(
            f"{len(targets)} files or directories match; explain takes one", advice="Explain them one by one"
        )
    return Explanation(_explain(targets[0], settings, Report(paths_of(path), codec_of(targets))))


@suggest_parameters
def repair(
    path: Paths,
    out: Path | None = None,
    *,
    codec: str | None = None,
    strategy: str | None = None,
    in_place: bool = False,
    backup: Path | None = None,
    dry_run: bool = False,
    correct: bool = True,
    recursive: bool = False,
    max_faults: int = MAX_FAULTS,
    show: Callable[[int], None] | None = None,
    **options: Any,
) -> Report:
    """Repair a damaged directory or file, and report what was kept and what was removed.

    `path`: a directory or file. Several directories are replicas of one store; each frame is taken from a replica in which it is undamaged.
    `strategy`: "salvage" keeps every undamaged frame, "prefix" keeps all frames before the first damage, "system" leaves what the real
    system would; None is the default of the layout, usually "salvage". The result is written to `out`, which must be absent or empty, and
    the input stays unchanged. With `in_place` the input is changed, and all files that change are first saved to `backup`, a directory
    outside the data. `dry_run` only reports what would be done. The result is verified before it is committed, and the commit is atomic.
    With `correct` a single flipped bit is corrected where checksums and other evidence prove it (`report.corrected`), before anything is
    removed; strategy "system" corrects nothing.
    `show` is called with the number of bytes written. Further options are those of the layout.

    A directory of stores (a broker's log directory, a folder of databases) or a system's configuration file stands for all its stores, with
    `recursive` also for those in all sub-folders. `out` and `backup` then have a directory for each store. The result of a log directory is
    a log directory: its own files are copied, without offsets beyond the end of a repaired log. If a store cannot be repaired, the others
    still are: `report["targets"]` describes each, and `report.failed` counts the failures.

    The report has the faults of the input, then `kept`, `cut` (what was removed) and `rows`, the number of rows in the result; `incomplete`
    is true if something was lost. Raises `BusyError` if the system or another writer is running, `ExistsError`, `UsageError`, `DamageError`
    if the result would be damaged, `StorageError`.
    """
    from logwright.writers.repair import repair
    from logwright.writers.request import Request

    request = Request(_text(out), in_place, _text(backup), dry_run, correct, show=show or _unseen)
    deep = bool(flag("recursive", recursive))
    return repair(path, codec, strategy, request, _reports(max_faults), options, deep)


@suggest_parameters
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
    """Rebuild the derived files of a directory (indexes, checkpoints, manifests) from its primary files, as the system would write them.

    A directory of stores or a configuration file stands for all its stores, as for `repair`. `what`: a list of names, or text with commas;
    None for all that the layout can rebuild. The other arguments are those of `repair`. Raises `DamageError` if a primary file is damaged:
    repair it first.
    """
    from logwright.writers.repair import rebuild
    from logwright.writers.request import Request

    request = Request(_text(out), in_place, _text(backup), dry_run, show=show or _unseen)
    deep = bool(flag("recursive", recursive))
    return rebuild(path, codec, what, request, _reports(max_faults), options, deep)


@suggest_parameters
def edit(
    path: Path,
    out: Path | None = None,
    *,
    drop: Conditions = None,
    redact: Conditions = None,
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
    """Remove rows from a directory or file, or redact values in them. All other frames keep their bytes.

    `drop`: a filter for the rows to remove, `[("key", "==", b"user-7")]` or text, as for `scan`. `redact`: a filter for the rows whose
    `columns` are replaced by `with_`: empty by default, other bytes, or None for null. Removed values do not remain in the result: batches and
    blocks that had them are encoded again, and indexes, filters and manifests are rebuilt. Offsets and sequence numbers are kept, with
    gaps, as after compaction. `out`, `in_place`, `backup` (which keeps the removed values) and `dry_run` are those of `repair`. Further
    options are those of the layout.

    A filter that matches no row raises `NotFoundError` and nothing is written, unless `allow_no_match` is true.

    The report lists the changed frames in `cut`, with the number of rows removed; `rows` is the number of rows in the result. Raises
    `DamageError` for damaged input, since damaged frames may hold matching rows; also `BusyError`, `ExistsError`, `UsageError`,
    `StorageError`.
    """
    from logwright.writers.edit import Rows
    from logwright.writers.edit import edit as _edit
    from logwright.writers.request import Request

    request = Request(_text(out), in_place, _text(backup), dry_run, show=show or _unseen)
    any_match = bool(flag("allow_no_match", allow_no_match))

    def rows(table: Table) -> Rows:
        return Rows(table, drop, redact, columns, with_, allow_no_match=any_match)

    return _edit(path, codec, rows, request, _reports(max_faults), options)


def _unseen(done: int) -> None: ...


def _text(path: Path | None) -> str | None:
    return None if path is None else text_of(path)


def _reports(max_faults: int) -> Callable[[Sequence[Target]], Report]:
    """Return a function that makes the report of some targets."""
    most = number("max_faults", max_faults)
    return lambda targets: Report([target.path for target in targets], codec_of(targets), max_faults=most)


@suggest_parameters
def inspect(
    path: Path, codec: str | None = None, *, recursive: bool = False, **options: Any
) -> dict[str, Any]:
    """Describe a file or directory from its headers: format, files, ranges of offsets and times, sizes, compression.

    A directory of stores gets a summary of each. `recursive`: include the stores in all sub-folders; without it `notes` names them.
    `unopened` lists stores that the user may not read.
    """
    skipped = Skipped()
    deep = bool(flag("recursive", recursive))
    targets = resolve.resolve(path, codec, options, skipped=skipped, recursive=deep, verb=Verb.INSPECT)
    names = expand(path)
    directories = [target for target in targets if isinstance(target, DirectoryTarget)]
    container = None
    if not (len(targets) == 1 and targets[0].path in names):
        container = registry.named_container(codec or detect(path))
    # Files beside the stores of a directory are not listed.
    if len(targets) == 1 and container is None and not skipped.unopened:
        details = _inspect.inspect(targets[0])
    elif len(names) == 1 and (directories or container):
        details = _inspect.several(", ".join(paths_of(path)), directories, container)
    else:
        text = f"{len(targets)} stores or files match; inspect takes one path at a time"
        raise UsageError(text, path=", ".join(paths_of(path)))
    return {
        **details,
        "notes": [*details.get("notes", ()), *skipped.sentences],
        "unopened": [error.path for error in skipped.unopened],
    }


@short_traceback
def detect(path: Path) -> str | None:
    """Return the codec of a file or the layout of a directory; None if it is not recognised."""
    return resolve.detect(path)
