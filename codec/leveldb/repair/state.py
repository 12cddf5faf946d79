"""Read damaged metadata of a database: CURRENT, and the manifests past their damage.

Source: `VersionSet::Recover`, `DBImpl::NewDB` and `RemoveObsoleteFiles` of LevelDB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from logwright.codec.engine.repair import Removed
from logwright.codec.fault import Severity, UnreadableError
from logwright.codec.frames.walk import Hole, walk_listed
from logwright.codec.leveldb.formats.current import read_current
from logwright.codec.leveldb.formats.manifest import codec as manifest
from logwright.codec.leveldb.formats.manifest.layout import EditError, EditField
from logwright.codec.leveldb.formats.manifest.layout import parse as parse_edit
from logwright.codec.leveldb.formats.records.codec import Payloads
from logwright.codec.leveldb.names import CURRENT, FileType, number_in, parse
from logwright.codec.leveldb.store.version import Version
from logwright.codec.single_frame import ParseError
from logwright.codec.store.listing import Entry, Listing


@dataclass
class State:
    """The state recorded in the metadata."""

    manifest: str | None = None
    """The manifest it was read from."""
    version: Version = field(default_factory=Version)
    sound: bool = False
    """Whether it was read completely, and nothing is missing in it."""
    gone: set[int] = field(default_factory=set)
    """Tables that an edit deletes and no later one adds."""
    complete_below: int = 0
    """Tables with smaller numbers are live only if the manifest names them: it begins with a full list."""
    cut: list[Removed] = field(default_factory=list)
    rank: tuple[bool, bool, int] = (False, False, -1)

    def live(self, number: int) -> bool:
        """Return whether a log of this number is read on opening, as far as is known."""
        first, before = self.version.log_number or 0, self.version.prev_log_number or 0
        return number >= first or number == before


def read_state(listing: Listing, manifests: Sequence[Entry]) -> State:
    """Read the best manifest: the one that CURRENT names, if anything in it can be read; otherwise the newest complete one, or the one
    with the most edits. `manifests` are the manifests by their names or by their contents."""
    sizes = {entry.name: entry.size for entry in listing.entries()}
    named = _named(listing, sizes)
    if named in sizes:
        state = _read(listing, named, sizes[named])
        if state.version.edits:
            return state
    others = [_read(listing, entry.name, entry.size) for entry in manifests if entry.name != named]
    best = max(others, key=lambda candidate: candidate.rank, default=State())
    return best if best.version.edits else State()


def _named(listing: Listing, sizes: dict[str, int]) -> str:
    if CURRENT not in sizes:
        return ""
    try:
        return read_current(listing).decode(errors="surrogateescape")
    except (ParseError, UnreadableError):
        return ""


def _read(listing: Listing, name: str, size: int) -> State:
    state = State(name, sound=True)
    deleted: set[int] = set()
    for stretch in walk_listed(listing, name, size, manifest.CODEC):
        if isinstance(stretch, Hole):
            fault = stretch.fault
            if fault.severity is not Severity.INFO:
                state.sound = False
                state.cut.append(Removed(name, fault.offset, fault.length, f"{fault.kind}: {fault.detail}"))
            continue
        records = Payloads.of(stretch.window, stretch.frames)
        for i, (start, end) in enumerate(zip(records.start.tolist(), records.end.tolist(), strict=True)):
            at = stretch.window.offset + int(stretch.frames.start[i])
            try:
                edit = parse_edit(records.data[start:end].tobytes())
            except EditError as error:
                state.sound = False
                length = int(stretch.frames.end[i] - stretch.frames.start[i])
                state.cut.append(Removed(name, at, length, str(error)))
                continue
            if at == 0:
                _first(state, name, edit)
            state.version.apply(edit)
            deleted |= {
                change.number
                for change in edit
                if change.name == "deleted_file" and change.number is not None
            }
    state.gone = deleted - set(state.version.files)
    complete = state.version.missing() is None
    state.sound = state.sound and complete
    state.rank = (state.sound, complete, number_in(name))
    return state


def _first(state: State, name: str, edit: Sequence[EditField]) -> None:
    """Note that LevelDB started a manifest on opening: its first edit lists all tables, without numbers (`WriteSnapshot`)."""
    fields = {change.name for change in edit}
    named = parse(name)
    if named is None or named.type is not FileType.DESCRIPTOR:
        return  # a manifest under another name
    if "comparator" in fields and not fields & {"next_file_number", "last_sequence"}:
        state.complete_below = number_in(name)
