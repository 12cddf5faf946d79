"""`roundtrip`: check the laws on the user's files.

A file of up to 64 MiB is held in memory, together with its tables, decoded and encoded again. A larger file is split at frames into
parts of that size, and each part is checked like a file. A file with an index of its frames (a LevelDB table) is
never split. The slow law `kernel_equals_description` is checked on the frames of the first MiB of a file,
unless it is requested by name.

Damaged files obey the laws too: damaged bytes are reproduced. The damage is reported as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from logwright.codec import registry
from logwright.codec.fault import LogwrightError, Severity, UsageError, did_you_mean
from logwright.codec.option import Verb, number
from logwright.readers import jobs as _jobs
from logwright.readers.paths import Path
from logwright.readers.report_data import FileReport
from logwright.readers.resolve import resolve
from logwright.readers.source import STDIN, Source, open_source
from logwright.readers.split import split
from logwright.readers.stream import FileStream, Mode
from logwright.readers.target import DirectoryTarget, FileTarget, Skipped
from logwright.readers.task import codec_options, known_options
from logwright.readers.usage import suggest_parameters
from logwright.roundtrip import laws
from logwright.roundtrip.specimen import Specimen

HELD = 64 << 20
"""The number of bytes held in memory at a time, or one frame if that is larger."""
DESCRIBED = 1 << 20
"""The number of bytes checked by the slow law by default."""
_FINE = 64 << 10
"""Files up to this size are also split before every frame."""


def _any_split(specimen: Specimen) -> laws.Verdict:
    size = len(specimen.data)
    return laws.any_split(specimen, sizes=[*([1] if size <= _FINE else ()), size // 7 + 1, size // 2 + 1])


LAWS: Mapping[str, Callable[[Specimen], laws.Verdict]] = {
    "decode_encode": laws.decode_encode,
    "encode_without_payloads": laws.encode_without_payloads,
    "any_split": _any_split,
    "kernel_equals_description": laws.kernel_equals_description,
}
"""The laws by name, in the order of the checks."""
DESCRIPTIONS = {
    "decode_encode": "decoded and encoded: the same bytes",
    "encode_without_payloads": "encoded without stored payloads: the same rows",
    "any_split": "read in parts: the same rows",
    "kernel_equals_description": "the kernels return what the format description says",
}
_MODE = Mode.DROPMALFORMED
_SLOW = "kernel_equals_description"


@dataclass(frozen=True)
class Outcome:
    """The result of one law on one file. `holds` is None if it could not be checked. `difference` is the reason or the first difference."""

    law: str
    holds: bool | None
    bytes: int
    """The number of bytes of the file that were checked."""
    difference: str = ""
    at: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class FileOutcome:
    """The results of all laws on one file. `faults` is the number of faults, `damaged` whether one of them is an error."""

    path: str
    codec: str
    bytes: int
    outcomes: tuple[Outcome, ...] = ()
    faults: int = 0
    damaged: bool = False
    error: str = ""
    """The reason why it could not be checked."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "codec": self.codec,
            "bytes": self.bytes,
            "faults": self.faults,
            "damaged": self.damaged,
            "error": self.error,
            "laws": [outcome.to_dict() for outcome in self.outcomes],
        }


@dataclass(frozen=True)
class Roundtrip:
    """The results of all files. `str()` is the report's text."""

    files: tuple[FileOutcome, ...]
    notes: tuple[str, ...] = field(default=())
    unopened: bool = False
    """Whether there are stores that could not be opened."""

    @property
    def ok(self) -> bool:
        """Whether all laws hold on all files, and no file is damaged."""
        return self.holds and not self.damaged

    @property
    def holds(self) -> bool:
        """Whether all checked laws hold."""
        return not any(outcome.holds is False for file in self.files for outcome in file.outcomes)

    @property
    def damaged(self) -> bool:
        return any(file.damaged for file in self.files)

    @property
    def unchecked(self) -> bool:
        """Whether something could not be checked."""
        return self.unopened or any(
            file.error or any(outcome.holds is None for outcome in file.outcomes) for file in self.files
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "holds": self.holds,
            "damaged": self.damaged,
            "files": [file.to_dict() for file in self.files],
            "notes": list(self.notes),
        }

    def text(self) -> str:
        """Return one line per file and law."""
        lines = []
        width = max((len(law) for law in LAWS), default=0)
        wide = max((len(file.path) for file in self.files), default=0)
        for file in self.files:
            if file.error:
                lines.append(f"{file.path}  could not be checked: {file.error}")
            for outcome in file.outcomes:
                word = {True: "holds", False: "BROKEN", None: "not checked"}[outcome.holds]
                part = (
                    ""
                    if outcome.bytes >= file.bytes
                    else f", the first {outcome.bytes:,} of {file.bytes:,} bytes"
                )
                more = (
                    f": {outcome.difference}"
                    if outcome.difference
                    else f" ({DESCRIPTIONS[outcome.law]}{part})"
                )
                lines.append(f"{file.path.ljust(wide)}  {outcome.law.ljust(width)}  {word}{more}")
            if file.damaged:
                count = f"{file.faults:,} fault{'' if file.faults == 1 else 's'}"
                lines.append(f"{file.path}  DAMAGED  {count}: see `logwright verify`")
        return "\n".join([*lines, *self.notes])

    def __str__(self) -> str:
        return self.text()


@suggest_parameters
def roundtrip(
    path: Path | Sequence[Path],
    codec: str | None = None,
    *,
    law: str | Sequence[str] | None = None,
    jobs: int | str = 1,
    **options: Any,
) -> Roundtrip:
    """Check the laws that every codec obeys on your own files: one file, or all files of directories.

    `law`: a list of names, or text with commas; None for all. decode_encode: a file that is decoded and encoded again has the same bytes.
    encode_without_payloads: encoded without any stored payload, it has the same rows. any_split: read in parts, it has the same rows.
    kernel_equals_description: the compiled kernels return what the format description says (slow; only the first MiB of a file unless
    named). `jobs`: number of processes; each holds 64 MiB of a file and its tables in memory.

    Violations and damage are in the result; `.ok` is true without any. Raises `LogwrightError` for a path that cannot be opened.
    """
    chosen = _chosen(law)
    skipped = Skipped()
    targets = resolve(path, codec, options, skipped=skipped, verb=Verb.ROUNDTRIP)
    work: list[Callable[[], FileOutcome]] = []
    for target in targets:
        if isinstance(target, FileTarget):
            work.append(_Piece(_file(target), chosen, law is not None))
        else:
            files = list(_directory(target))
            work += [_Piece(item, chosen, law is not None) for item in files]
            rest = len(target.plan.files) - len(files)
            if rest:
                skipped.notes.append(
                    f"{target.path}: skipped {rest} unrecognised file{'' if rest == 1 else 's'}"
                )
    outcomes = tuple(_jobs.run(work, number("jobs", jobs, 1)))
    return Roundtrip(outcomes, tuple(skipped.sentences), bool(skipped.unopened))


def _chosen(law: str | Sequence[str] | None) -> tuple[str, ...]:
    if law is None:
        return tuple(LAWS)
    names = [name.strip() for name in law.split(",")] if isinstance(law, str) else list(law)
    for item in names:
        if item not in LAWS:
            raise UsageError(f"no law {item!r}", advice=did_you_mean(item, LAWS))
    return tuple(item for item in LAWS if item in names)


@dataclass(frozen=True)
class _InputFile:
    """A picklable reference to a file."""

    shown: str
    real: str
    name: str
    codec: str
    options: Mapping[str, Any]
    hints: Mapping[str, Any]
    data: bytes | None = None
    """The content of standard input."""

    def open(self) -> Source:
        if self.data is not None:
            from logwright.readers.source import MemorySource

            return MemorySource(self.data, self.shown)
        return open_source(self.real, self.shown)


def _file(target: FileTarget) -> _InputFile:
    data = None
    if target.source is not None:
        data = target.source.pread(0, target.source.size).tobytes()
    options = known_options(target.options, target.codec.options)
    real = STDIN if data is not None else target.path
    return _InputFile(target.path, real, target.name, target.codec.name, options, target.hints, data)


def _directory(target: DirectoryTarget) -> Iterator[_InputFile]:
    for file in target.plan.files:
        if file.codec is not None:
            codec = registry.get(file.codec)
            directory = target.directory
            yield _InputFile(
                directory.shown(file.name), directory.real(file.name), file.name, file.codec,
                known_options(target.options, codec.options), target.hints(file.hints),
            )  # fmt: skip


@dataclass(frozen=True)
class _Piece:
    """A job: one file. `asked`: the laws were requested by name, so the slow one is not limited."""

    file: _InputFile
    laws: tuple[str, ...]
    asked: bool

    def __call__(self) -> FileOutcome:
        source_file = self.file
        outcome = FileOutcome(source_file.shown, source_file.codec, 0)
        try:
            with source_file.open() as source:
                outcome = replace(outcome, bytes=source.size)
                return self._look(source, outcome)
        except LogwrightError as error:
            return replace(outcome, error=str(error))

    def _look(self, source: Source, outcome: FileOutcome) -> FileOutcome:
        source_file = self.file
        codec = registry.get(source_file.codec)
        if codec.single_frame and source.size > codec.largest:
            return replace(outcome, error=f"files of this kind are small, this one has {source.size} bytes")
        single = Specimen(codec, source_file.name, options=source_file.options, hints=source_file.hints)
        outcomes: dict[str, Outcome] = {}
        # Faults are those of the complete file, because a part lacks the context around it.
        report = FileReport(source_file.shown, codec.name)
        for _ in FileStream(source, codec, "rows", (), context=self._context(), report=report, mode=_MODE):
            pass
        damaged = any(fault.severity is Severity.ERROR for fault in report.faults)
        most = source.size if codec.indexed else HELD
        for start, stop in split(source, codec, self._context(), max(most, 1)):
            specimen = single.with_bytes(source.pread(start, stop - start).tobytes())
            for law in self.laws:
                before = outcomes.get(law, Outcome(law, True, 0))
                if before.holds:
                    outcomes[law] = self._hold(law, specimen, start, before)
        return replace(
            outcome, outcomes=tuple(outcomes.values()), faults=report.faults_total, damaged=damaged
        )

    def _context(self) -> Any:
        codec = registry.get(self.file.codec)
        return codec.context(self.file.name, codec_options(codec, self.file.options), **self.file.hints)

    def _hold(self, law: str, specimen: Specimen, start: int, before: Outcome) -> Outcome:
        """Check a law on a part of a file, and add the result to that of the earlier parts."""
        size = len(specimen.data)
        if law == _SLOW and not self.asked:
            if before.bytes:
                return before
            size = specimen.stretches(DESCRIBED)[0][1] if size > DESCRIBED else size
        try:
            if size < len(specimen.data):
                verdict = laws.kernel_equals_description(specimen, limit=size)
            else:
                verdict = LAWS[law](specimen)
        except LogwrightError as error:
            return replace(before, holds=None, difference=str(error))
        except Exception as error:  # a bug in logwright, which is what this verb looks for
            return replace(before, holds=False, difference=f"{type(error).__name__}: {error}", at=start)
        if verdict:
            return replace(before, bytes=before.bytes + size)
        where = f"from byte {start} on: " if start else ""
        return replace(before, holds=False, difference=f"{where}{verdict.difference}", at=verdict.at)
