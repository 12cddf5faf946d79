"""`damage`: make a damaged copy of files, with a record of the damage and of the rows that must still be read.

    OUT/<name>          the copy, with the original name
    OUT/damage.json     the operations, each explicitly; sizes and SHA-256 of all files before and after; the rows of all frames
                        that no operation touched; the result of `verify`, and the predicted behaviour of the real system

`OUT` is created by one rename. damage.json is placed beside the copy, so that a real system does not find it in its data
directory. `apply` repeats the recorded operations on the same files, without the seed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from logwright.codec import plural
from logwright.codec.fault import (
    ExistsError,
    LogwrightError,
    NotFoundError,
    StorageError,
    UnsupportedError,
    UsageError,
)
from logwright.codec.option import Verb, number
from logwright.corpora.damage_apply import Surgeon
from logwright.corpora.damage_image import STEP, Image, Known, Tree
from logwright.corpora.damage_ops import Operation, parse
from logwright.corpora.damage_random import at_random
from logwright.corpora.expected import Rows, Untouched, expected
from logwright.readers import verify as _verify
from logwright.readers.paths import text_of
from logwright.readers.plan import reading
from logwright.readers.report import Report
from logwright.readers.resolve import configuration, resolve
from logwright.readers.source import STDIN, Source, is_remote, local_path, open_source
from logwright.readers.target import DirectoryTarget, FileTarget, Skipped, Target, kind
from logwright.readers.usage import suggest_parameters
from logwright.writers.file import DIRECTORY_LOCK, locked_draft, remove_drafts
from logwright.writers.filesystem import (
    FileSystem,
    LocalFileSystem,
    Lock,
    make_above,
    plain_errors,
    put_file,
    remove_tree,
    unmake,
    write_all,
)

MANIFEST = "damage.json"
VERSION = 1
MOST_FAULTS = 100
"""The number of faults listed."""
_UNREAD = ("the disk cannot read", "cannot be read: ")
"""Starts of the texts of faults that are errors of the operating system (`UnreadableError`, `readers.verify_file`)."""
_MOST_APPLY = 64 << 20
OperationSpec = str | Mapping[str, Any]


@dataclass(frozen=True)
class Damaged:
    """The damaged copy and its damage.json. `manifest` is the content of that file."""

    path: str
    manifest_path: str
    operations: Sequence[Mapping[str, Any]]
    rows: int
    """Rows of frames that no operation touched."""
    manifest: Mapping[str, Any] = field(repr=False)


@suggest_parameters
def damage(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    op: OperationSpec | Iterable[OperationSpec] = (),
    *,
    codec: str | None = None,
    seed: int | str = 0,
    count: int | str = 0,
    apply: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    **options: Any,
) -> Damaged:
    """Copy a file or directory to `out/<its name>`, damage the copy deliberately, and describe the damage in `out/damage.json`.

    `op`: one operation or several, as text ("flip:at=1234,bit=3") or mappings ({"op": "flip", "at": 1234, "bit": 3}), executed in order;
    positions refer to the bytes at the time when the operation runs. `logwright damage --help` lists the operations,
    `logwright.corpora.damage_ops` documents them. `count`: number of additional random operations; `seed` makes them reproducible. `apply`:
    repeat the operations of a damage.json on the same files. `out` must be absent or empty; the input is only read. `options`: those of
    `verify`, such as the password that recomputing an HMAC needs; damage.json does not hold them.

    damage.json holds every operation in full, sizes and SHA-256 of all files before and after, the number and SHA-256 of the rows in frames
    that no operation touched, what `verify` finds, and what the real system would do.

    Raises `UsageError` for an unknown operation, field or position, and for files other than those in damage.json; `ExistsError`,
    `NotFoundError`, `AccessError`, `StorageError`.
    """
    source, target = text_of(path), text_of(out)
    for name in (source, target):
        if is_remote(name) or name == STDIN:
            raise UsageError("only local files can be damaged", path=name, advice="Use a local copy")
    operations = [parse(text) for text in ([op] if isinstance(op, str | Mapping) else op)]
    record = None if apply is None else _record(apply)
    if record is not None:
        if operations or number("count", count):
            raise UsageError(
                "damage.json and new operations exclude each other", advice="Leave out one of them"
            )
        operations = [parse(text) for text in record["operations"]]
    by_chance = number("count", count)
    if not operations and not by_chance and record is None:
        raise UsageError(
            "no operation",
            advice="Pass op='flip:at=1234,bit=3' (--op 'flip:at=1234,bit=3'), or count and seed (--count, --seed) for random ones",
        )
    with plain_errors(target), Input(source, codec, options) as original:
        return _Work(
            original,
            operations,
            number("seed", seed, -(1 << 63)),
            by_chance,
            record,
            LocalFileSystem(),
            target,
        ).run()


def _record(apply: str | os.PathLike[str] | Mapping[str, Any]) -> Mapping[str, Any]:
    """Load and check a damage.json."""
    if isinstance(apply, Mapping):
        record: Any = apply
        name = "the mapping"
    else:
        name = text_of(apply)
        with open_source(name) as source:
            if source.size > _MOST_APPLY:
                raise UsageError(
                    f"not a damage.json: the file has {plural.count(source.size, 'byte')}", path=name
                )
            try:
                record = json.loads(source.pread(0, source.size).tobytes())
            except ValueError as error:
                raise UsageError(f"not a damage.json: {error}", path=name) from None
    try:
        if record["damage"] != VERSION:
            raise UsageError(f"{name}: version {record['damage']} of damage.json, {VERSION} is known")
        for part in ("input", "output"):
            for entry in record[part]["files"]:
                entry["name"], entry["size"], entry["sha256"]
        if not isinstance(record["operations"], list):
            raise TypeError("operations are not a list")
    except (KeyError, TypeError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else error
        advice = "Pass the damage.json of an earlier `logwright damage`"
        raise UsageError(f"{name} is not a damage.json: {why}", advice=advice) from None
    return record  # type: ignore[no-any-return]


class Input:
    """The original files: one, or all below a directory. They are only read."""

    def __init__(self, path: str, codec: str | None, options: Mapping[str, Any] | None = None) -> None:
        self.path, self.codec, self.options = path, codec, dict(options or {})
        self.real = os.path.abspath(local_path(path))
        self.directory = os.path.isdir(self.real)
        self.name = os.path.basename(self.real) or os.path.basename(os.path.realpath(self.real))
        self._open: dict[str, Source] = {}
        self.targets: list[Target] = []
        if self.directory:
            self.sizes = dict(sorted(_below(self.real)))
            # An unrecognised directory is damaged by bytes.
            with contextlib.nullcontext() if self.options else contextlib.suppress(UsageError):
                self.targets = resolve(path, codec, self.options, skipped=Skipped(), verb=Verb.VERIFY)
        else:
            config = None if codec is not None else configuration(path)
            if config is not None:
                raise UsageError(
                    f"a configuration file of {config.system} stands for the directories that it names, and damage takes one",
                    path=path,
                    advice=f"Pass one of them, such as {config.directories[0]}",
                )
            with open_source(path) as source:
                self.sizes = {"": source.size}
            try:
                self.targets = resolve(path, codec, self.options, verb=Verb.VERIFY)
            except UsageError:
                if codec is not None or self.options:
                    raise
        if codec is not None and self.directory and not self.targets:
            resolve(path, codec)

    def at(self, name: str) -> str:
        return os.path.join(self.real, name) if name else self.real

    def named(self, path: str) -> str:
        """Return the name of the file at a path."""
        return os.path.relpath(os.path.abspath(local_path(path)), self.real) if self.directory else ""

    def open(self, name: str) -> Source:
        """Open a file. The last few stay open."""
        source = self._open.get(name)
        if source is None:
            if len(self._open) >= 16:
                self._open.pop(next(iter(self._open))).close()
            shown = f"{self.path.rstrip('/')}/{name}" if name else self.path
            source = self._open[name] = open_source(self.at(name), shown)
        return source

    def tree(self) -> Tree:
        tree = Tree(self.name, self.path, self.sizes, self.open, not self.directory)
        if self.targets and isinstance(self.targets[0], FileTarget) and not self.directory:
            tree.only = Known(self.targets[0].codec, self.targets[0].hints)
        return tree

    def hashes(self) -> dict[str, str]:
        out = {}
        for name, size in self.sizes.items():
            digest = hashlib.sha256()
            for at in range(0, size, STEP):
                digest.update(self.open(name).pread(at, min(STEP, size - at)).data)
            out[name] = digest.hexdigest()
        return out

    def __enter__(self) -> Input:
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            self._open.popitem()[1].close()


def _below(path: str) -> Iterator[tuple[str, int]]:
    """Yield the relative names and sizes of all regular files below a directory."""

    def failed(error: OSError) -> None:
        raise error

    for folder, _, names in os.walk(path, onerror=failed):
        for name in names:
            inner = os.path.join(folder, name)
            try:
                status = os.stat(inner)
            except FileNotFoundError:
                continue  # a dangling link, or deleted meanwhile; other errors are raised
            if stat.S_ISREG(status.st_mode):
                yield os.path.relpath(inner, path), status.st_size


class _Work:
    def __init__(
        self, source: Input, operations: list[Operation], seed: int, count: int, record: Mapping[str, Any] | None,
        files: FileSystem, out: str,
    ) -> None:  # fmt: skip
        self.given, self.operations, self.seed, self.count = source, operations, seed, count
        self.record, self.files, self.out = record, files, out
        self.hashes: dict[str, str] = {}

    def run(self) -> Damaged:
        source, files = self.given, self.files
        refuse(files, source, self.out)
        if self.record is not None:
            self.hashes = source.hashes()
            _refuse_other(source, self.hashes, self.record)
        tree = source.tree()
        surgeon = Surgeon(tree, self.seed, options=source.options)
        done: list[dict[str, Any]] = []
        for operation in self.operations:
            done += surgeon.run(operation)
        done += at_random(surgeon, self.seed, self.count)
        with Staging(files, local_path(self.out)) as staging:
            top = os.path.join(staging.path, source.name)
            entries = self._write(tree, top)
            if self.record is not None:
                _refuse_different(entries, self.record)
            manifest = self._manifest(tree, done, entries, top)
            text = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
            put_file(files, os.path.join(staging.path, MANIFEST), text.encode(errors="surrogateescape"))
            staging.commit()
        target = local_path(self.out)
        return Damaged(
            os.path.join(target, source.name), os.path.join(target, MANIFEST), done, manifest["expected"]["rows"], manifest
        )  # fmt: skip

    def _write(self, tree: Tree, top: str) -> dict[str, dict[str, Any]]:
        """Write all files, and return size and hash of each. Unchanged input files are hashed on the way."""
        files = self.files
        if not tree.single:
            files.mkdir(top)
        folders = {top}
        entries: dict[str, dict[str, Any]] = {}
        for name, image in sorted(tree.images.items()):
            path = os.path.join(top, name) if name else top
            self._folders(os.path.dirname(path), folders)
            digest, at = hashlib.sha256(), 0
            file = files.create(path)
            try:
                for data in image.read():
                    digest.update(data.data)
                    at += write_all(file, data, at)
                origin = name if name in self.given.sizes else None
                model = self.given.at(origin) if origin is not None else self.given.real
                files.adopt(path, model, permissions=origin is not None)
                file.sync()
            finally:
                file.close()
            entries[name] = {"size": at, "sha256": digest.hexdigest()}
            if not image.changed and name in self.given.sizes:
                self.hashes.setdefault(name, digest.hexdigest())
        if not tree.single:
            # Not before its files are written: the input may be a read-only directory.
            files.adopt(top, self.given.real, permissions=True)
        for folder in folders if not tree.single else ():
            files.sync_directory(folder)
        return entries

    def _folders(self, folder: str, folders: set[str]) -> None:
        if folder in folders or self.files.stat(folder) is not None:
            folders.add(folder)
            return
        self._folders(os.path.dirname(folder), folders)
        self.files.mkdir(folder)
        folders.add(folder)

    def _manifest(
        self,
        tree: Tree,
        done: Sequence[Mapping[str, Any]],
        entries: Mapping[str, Mapping[str, Any]],
        top: str,
    ) -> dict[str, Any]:
        source = self.given
        before = source.hashes() if len(self.hashes) < len(source.sizes) else self.hashes
        changed = [
            name for name in entries if name in before and before[name] != entries[name]["sha256"]
        ]  # fmt: skip
        targets = _targets(top, source)
        rows = self._expected(tree, targets, top)
        chance = {"seed": self.seed, "count": self.count} if self.count else (self.record or {}).get("random")
        return {
            "damage": VERSION,
            "logwright": metadata.version("logwright"),
            "input": {
                "name": source.name,
                "codec": kind(source.targets[0]) if len(source.targets) == 1 else None,
                "files": [
                    {"name": name or source.name, "size": size, "sha256": before[name]}
                    for name, size in source.sizes.items()
                ],
            },
            "operations": list(done),
            **({"random": chance} if chance else {}),
            "output": {"files": [{"name": name or source.name, **entry} for name, entry in entries.items()]},
            "changed": [name or source.name for name in changed],
            "removed": [name for name in before if name not in entries],
            "added": [name for name in entries if name not in before],
            "expected": rows.to_dict(),
            "verdict": _verdict(targets, os.path.dirname(top), source),
        }

    def _expected(self, tree: Tree, targets: Sequence[Target], top: str) -> Rows:
        """Return the rows of untouched frames in files that are read."""
        read = set()
        for target in targets:
            if isinstance(target, FileTarget) and not tree.single:
                continue
            files = [file for task in reading([target]).tasks for file in task.files]
            read |= {os.path.relpath(file.real, top) for file in files}
        images: list[Image] = [
            image
            for name, image in tree.images.items()
            if (name or ".") in {os.path.normpath(item) for item in read}
        ]
        before = [
            item for item in self.given.targets if isinstance(item, DirectoryTarget) or not self.given.directory
        ]  # fmt: skip
        # The name of a single file's folder is a hint for decoding, and the copy is in another folder.
        folder = os.path.basename(self.files.real(local_path(self.out))) if tree.single else None
        return expected(before, Untouched(images), self.given.named, folder)


def _targets(path: str, source: Input) -> list[Target]:
    """Recognise the damaged copy, if that is still possible."""
    if not source.targets:
        return []
    try:
        return resolve(path, source.codec, source.options, skipped=Skipped())
    except (UsageError, NotFoundError):
        try:
            codec = kind(source.targets[0]) if len(source.targets) == 1 else None
            return resolve(path, codec, source.options, skipped=Skipped())
        except (UsageError, NotFoundError):
            return []


def _verdict(targets: Sequence[Target], staging: str, source: Input) -> dict[str, Any]:
    """Return the result of `verify`, and the predicted behaviour of the real system."""
    if not targets:
        return {"verify": None, "system": []}
    report = Report(source.name, max_faults=MOST_FAULTS)
    _verify.verify(targets, report, _verify.VerifyOptions(max_faults=MOST_FAULTS))
    prefix = re.compile(re.escape(os.path.join(staging, source.name)) + "/?")
    for name, fault in report.faults:
        # A disk error while reading back the copy is not deliberate damage.
        if fault.detail.startswith(_UNREAD):
            raise StorageError(
                f"the copy cannot be read back: {fault.detail}", path=os.path.basename(name) or source.name
            )
    verified = report.to_dict()
    faults = [
        {"file": prefix.sub("", file["path"]) or source.name, **fault} for file in verified["files"] for fault in file["faults"]
    ]  # fmt: skip
    summary = {
        name: verified[name] for name in ("ok", "bytes", "bytes_damaged", "frames", "rows", "faults_total")
    }
    systems = []
    for target in targets:
        predict = target.layout.capabilities.predict if isinstance(target, DirectoryTarget) else None
        if isinstance(target, DirectoryTarget) and predict is not None:
            verdicts: dict[str, Any] = {"target": prefix.sub("", target.path) or source.name}
            for name, clean in (("clean", True), ("unclean", False)):
                try:
                    started = predict.run(
                        target.directory, target.plan, target.layout_options, version=None, clean=clean
                    )
                    verdicts[name] = started.verdict.to_dict()
                except UnsupportedError as error:
                    verdicts[name] = {"opens": None, "error": error.message}
            systems.append(verdicts)
    return {"verify": {**summary, "faults": faults[:MOST_FAULTS]}, "system": systems}


def refuse(files: FileSystem, source: Input, out: str) -> None:
    """Raise an error if the result cannot be written to `out`."""
    path = files.real(local_path(out))
    inside = files.real(source.real)
    if path == inside or path.startswith(f"{inside}/"):
        raise UsageError(
            "the copy cannot be inside of the original", path=out, advice="Choose another directory"
        )
    status = files.stat(path)
    if status is not None and (not status.directory or files.listdir(path)):
        raise ExistsError(
            "it already exists" if not status.directory else "it is not empty",
            path=out,
            advice="The copy and damage.json need a new directory: name one that is absent or empty",
        )


def _refuse_other(source: Input, hashes: Mapping[str, str], record: Mapping[str, Any]) -> None:
    """Raise `UsageError` if the files are not those of the record."""
    recorded = {entry["name"]: entry["sha256"] for entry in record["input"]["files"]}
    actual = dict(hashes)
    if not source.directory:
        recorded = {"": next(iter(recorded.values()), "")}
    differ = sorted(name for name in {*recorded, *actual} if recorded.get(name) != actual.get(name))
    if differ:
        name = differ[0]
        difference = (
            "is not there" if name not in actual else "was not there" if name not in recorded else "differs"
        )
        more = f", and {len(differ) - 1} more" if len(differ) > 1 else ""
        raise UsageError(
            f"these are not the files of damage.json: {name or source.name} {difference}{more}",
            path=source.path,
            advice="Apply damage.json to the original files. It records their sizes and SHA-256",
        )


def _refuse_different(entries: Mapping[str, Mapping[str, Any]], record: Mapping[str, Any]) -> None:
    recorded = {entry["name"]: entry["sha256"] for entry in record["output"]["files"]}
    actual = {name: entry["sha256"] for name, entry in entries.items()}
    if set(actual) == {""}:
        actual = {next(iter(recorded), ""): actual[""]}
    if recorded != actual:
        name = sorted(item for item in {*recorded, *actual} if recorded.get(item) != actual.get(item))[0]
        raise LogwrightError(
            f"{name} differs from the result in damage.json (made by logwright {record.get('logwright')})",
            advice="Recompressed records depend on the compressor's version: use the same versions, or damage the files again",
        )


class Staging:
    """A new directory that is created by one rename or not at all. Leftovers of killed runs for the same target are removed."""

    def __init__(self, files: FileSystem, out: str) -> None:
        self.files, self.out = files, files.real(out)
        self.above, self._name = os.path.split(self.out)
        self.path = ""
        self._lock: Lock | None = None
        self._created: tuple[str, ...] = ()

    def __enter__(self) -> Staging:
        files = self.files
        self._created = make_above(files, self.above)
        try:
            remove_drafts(files, self.above, self._name)
            self.path, self._lock = locked_draft(files, self.above, self._name, DIRECTORY_LOCK)
            files.mkdir(self.path)
            exists = files.stat(self.out) is not None
            files.adopt(self.path, self.out if exists else self.above, permissions=exists)
        except BaseException:
            self._undo()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._undo()

    def commit(self) -> None:
        files = self.files
        files.sync_directory(self.path)
        files.rename(self.path, self.out)
        self._created = ()
        try:
            self._free()
            files.sync_directory(self.above)
        except OSError as error:
            raise StorageError(
                f"the copy is complete, but syncing its directory failed ({error.strerror})", path=self.out
            ) from error

    def _undo(self) -> None:
        if self._lock is not None:
            with contextlib.suppress(OSError):
                remove_tree(self.files, self.path)
        with contextlib.suppress(OSError):
            self._free()
        unmake(self.files, self._created)

    def _free(self) -> None:
        if self._lock is not None:
            lock, self._lock = self._lock, None
            try:
                self.files.remove(self.path + DIRECTORY_LOCK)
            finally:
                lock.release()
