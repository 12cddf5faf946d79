"""The codec `bookkeeper.index`: the index of one ledger (`<id in hex>.idx`): where its entries are in entry logs.

A row is an entry that has a location. Damage of the header leaves the locations readable. Source: `FileInfo`, `IndexPersistenceMgr` and
`LedgerEntryPage` of BookKeeper.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Int64s
from logwright.codec.base import Codec, Match
from logwright.codec.bookkeeper.formats.digest import PASSWORD, master_key
from logwright.codec.columns import numbers
from logwright.codec.describe import (
    I32BE,
    I64BE,
    Bit,
    Bytes,
    DescriptionError,
    Field,
    Flags,
    Nothing,
    Repeated,
    Struct,
    Switch,
)
from logwright.codec.fault import Fault, Kind, Severity, UsageError
from logwright.codec.option import Option, Options, parse_bool
from logwright.codec.single_frame import FRAMES, conform, ending_bytes, single_value
from logwright.codec.table import Column, Table, ending, extent
from logwright.codec.window import Bytes as Buffer
from logwright.codec.window import Chunk, Decoded, Frames, Window

NAME = "bookkeeper.index"
MAGIC, NEWEST, FENCED = b"BKLE", 1, 1
HEADER_SIZE, SLOT, FIRST_POSITION = 1024, 8, 1028
"""Size of the header, size of a location, and the smallest position of an entry in a log."""
_OLDEST = 32
"""Size of a file of release 4.0 before its first page is written: it ends after the master key."""
_MOST_FAULTS = 100


def _place(location: int, scope: Mapping[str, Any]) -> str:
    """Describe a location for explain."""
    return f"byte {location & 0xFFFFFFFF} of {location >> 32:x}.log" if location > 0 else ""


EXPLICIT_LAC = Struct(
    "ExplicitLac",
    Field("data_length", I32BE, "0 if none was set"),
    Field("data", Bytes("data_length"), "ledger id, last-add-confirmed and digest"),
)
INDEX = Struct(
    "LedgerIndex",
    Field("signature", Bytes(4), "BKLE", only=MAGIC, default=MAGIC),
    Field("version", I32BE, "0, or 1 with an explicit last-add-confirmed"),
    Field("master_key_length", I32BE, "usually 20"),
    Field("master_key", Bytes("master_key_length"), "SHA-1 of the password"),
    Field(
        "state_bits",
        Flags(I32BE, (Bit("FENCED", 0, doc="no client can add entries"),)),
        "state of the ledger",
    ),
    Field("explicit_lac", Switch("version < 1", {0: EXPLICIT_LAC, 1: Nothing()}), "from version 1 on"),
    Field(
        "padding",
        Bytes(
            "(1008 - master_key_length) if version < 1 else (1004 - master_key_length - explicit_lac.data_length)"
        ),
        "zeros up to 1024 bytes",
    ),
    Field(
        "locations",
        Repeated(
            Struct("Location", Field("location", I64BE, "log id and position; 0: none", says=_place)),
            least=SLOT,
            blank=bytes(SLOT),
        ),
        "of entries 0, 1, 2, ...",
        rows=True,
    ),
    Field("rest", Bytes("rest"), "less than a location", default=b""),
    source="FileInfo.writeHeader, LedgerEntryPage",
)
ROWS = Table(
    "rows",
    (
        Column("ledger_id", pa.int64(), "the ledger, from the name of the file"),
        Column("entry_id", pa.int64(), "the entry", nullable=False),
        Column("location", pa.int64(), "log_id * 2^32 + offset", nullable=False, detail=True),
        Column("log_id", pa.int64(), "the entry log"),
        Column("offset", pa.int64(), "byte of the log where the entry starts, after its size"),
    ),
    "One row per entry that has a location.",
    key=("ledger_id", "entry_id"),
)
FILE = Table(
    "file",
    (
        Column("ledger_id", pa.int64(), "the ledger, from the name of the file"),
        Column("version", pa.int32(), "of the header"),
        Column("master_key", pa.binary(), "SHA-1 of the password"),
        Column("state_bits", pa.int32(), "bit 0: fenced"),
        Column("fenced", pa.bool_(), "whether no client can add entries"),
        Column("explicit_lac", pa.binary(), "ledger id, last-add-confirmed and digest; null if none was set"),
        *extent("frames"),
        *ending("frame"),
    ),
    "One row.",
)
_COUNTED = 1 << 24
PAGE = Option(
    "pageSize", 8192, "The locations fill a multiple of this number of bytes", low=SLOT, high=_COUNTED
)
VERSION = Option(
    "fileInfoFormatVersionToWrite", NEWEST, "Version of the header that is written", low=0, high=NEWEST
)
IS_FENCED = Option("fenced", False, "Whether the ledger is fenced", parse_bool)


@dataclass(frozen=True)
class FileInfo:
    """The header of an index file. If upstream refuses the header, `error` is its message and `at` the byte of the fault."""

    version: int = NEWEST
    master_key: bytes = b""
    state_bits: int = 0
    explicit_lac: bytes = b""
    error: str = ""
    at: int = 0

    @classmethod
    def of(cls, data: bytes) -> FileInfo:
        """Read the header up to the first invalid field."""
        head = data[:HEADER_SIZE]
        if head[:4] != MAGIC:
            return cls(error="Missing ledger signature", at=0)
        if len(head) < 12:
            return cls(error="Error reading header", at=len(head))
        version, length = (int.from_bytes(head[at : at + 4], "big", signed=True) for at in (4, 8))
        if version > NEWEST:
            return cls(version, error=f"Incompatible ledger version {version}", at=4)
        if length < 0:
            return cls(version, error=f"Length {length} is invalid", at=8)
        at = 12 + length
        if at > len(head):
            return cls(version, error=f"the master key has {length} bytes, the header {len(head)}", at=8)
        info = cls(version, head[12:at])
        if at == len(data) == _OLDEST:
            return info
        if at + 4 > len(head):
            return replace(info, error="Error reading header", at=at)
        info = replace(info, state_bits=int.from_bytes(head[at : at + 4], "big", signed=True))
        if version < 1:
            return info
        at += 4
        length = int.from_bytes(head[at : at + 4], "big", signed=True)
        if len(head) - at < 4 or (length and length < 16) or length > len(head) - at - 4:
            return replace(info, error=f"ExplicitLac length {length} is invalid", at=at)
        return replace(info, explicit_lac=head[at + 4 : at + 4 + length])

    def form(self) -> bytes:
        """Return the 1024 bytes of the header. Raises `DescriptionError` if it does not fit."""
        lac = b"" if self.version < 1 else len(self.explicit_lac).to_bytes(4, "big") + self.explicit_lac
        head = MAGIC + self.version.to_bytes(4, "big", signed=True) + len(self.master_key).to_bytes(4, "big")
        data = head + self.master_key + self.state_bits.to_bytes(4, "big", signed=True) + lac
        if len(data) > HEADER_SIZE or (self.explicit_lac and self.version < 1):
            raise DescriptionError("master_key and explicit_lac do not fit the header")
        return data.ljust(HEADER_SIZE, b"\0")


def locations_of(data: Buffer) -> Int64s:
    """Return the locations of entries 0, 1, ... in an index file; 0 if an entry has none."""
    slots = max(0, len(data) - HEADER_SIZE) // SLOT
    return data[HEADER_SIZE : HEADER_SIZE + slots * SLOT].view(">i8").astype(np.int64)


def most_entries(page: int) -> int:
    """Return how many entries the largest index file that is read has a place for. It has complete pages of `page` bytes."""
    return (CODEC.largest - HEADER_SIZE) // page * page // SLOT


def index_bytes(info: FileInfo, entries: Int64s, locations: Int64s, page: int = PAGE.default) -> bytes:
    """Return an index file: at least one page of locations, which fill complete pages. A later location of an entry wins."""
    slots = int(entries.max()) + 1 if len(entries) else 0
    pages = max(1, -(-slots * SLOT // page))
    out = np.zeros(pages * page // SLOT, ">i8")
    out[entries] = locations
    return info.form() + out.tobytes()


@dataclass
class IndexContext:
    """`ledger`: the id in the file's name."""

    options: Options
    ledger: int | None = None


class Index(Codec):
    """The codec."""

    name = NAME
    title = "BookKeeper ledger index"
    structures = (INDEX,)
    described = (INDEX,)
    tables: Mapping[str, Table] = {"rows": ROWS, "frames": FRAMES, "file": FILE}
    options = (PAGE, VERSION, IS_FENCED, PASSWORD)
    single_frame = True
    scans_empty = True
    pattern = re.compile(r"([0-9a-f]{1,16})\.idx(?:\.rloc)?")
    system = "the first access to the ledger fails"

    def recognise(self, name: str, head: bytes) -> Match:
        return Match.of(bool(self.pattern.fullmatch(name)), head.startswith(MAGIC))

    def context(self, name: str, options: Options, **hints: Any) -> IndexContext:
        match = self.pattern.fullmatch(name)
        ledger = None if match is None else int(match[1], 16)
        return IndexContext(options, ledger if ledger is None or ledger < 1 << 63 else None)

    def scan(self, window: Window, at: int, context: IndexContext, *, check: bool = True) -> Frames:
        data, size = window.data, len(window.data)
        zero, empty = np.zeros(1, np.int64), np.empty(0, np.int64)
        info = FileInfo.of(data[:HEADER_SIZE].tobytes())
        if size < 12:
            kind = Kind.MAGIC if data[:4].tobytes() != MAGIC[:size] else Kind.TRUNCATED
            fault = Fault(NAME, 0, size, kind, f"{info.error}: {size} bytes", system=self.system)
            return Frames(empty, empty, empty, 0, 0, fault)
        faults = []
        if info.error:
            kind = Kind.MAGIC if info.at < 8 else Kind.LENGTH
            faults.append(Fault(NAME, info.at, 4, kind, info.error, system=self.system, rows_lost=0))
        else:
            faults += self._unknown(info)
        if size != _OLDEST:
            faults += self._shape(size)
        if check:
            faults += self._wrong(locations_of(data))
        return Frames(zero, np.array([size], np.int64), zero, size, faults=faults)

    def _unknown(self, info: FileInfo) -> Iterator[Fault]:
        """Report values that no bookie writes and every bookie accepts."""
        if info.version < 0:
            text = f"version is {info.version}, expected 0 or 1"
            system = "the bookie reads the header as one of version 0, without an explicit last-add-confirmed"
            yield Fault(NAME, 4, 4, Kind.MAGIC, text, Severity.WARNING, system, 0)
        if info.state_bits & ~FENCED:
            text = f"the state bits are {info.state_bits & 0xFFFFFFFF:#x}, of which only {FENCED:#x} is known"
            at = 12 + len(info.master_key)
            yield Fault(NAME, at, 4, Kind.PAYLOAD, text, Severity.WARNING, "the bookie ignores the others", 0)

    def _shape(self, size: int) -> Iterator[Fault]:
        slots = size - HEADER_SIZE
        if slots <= 0:
            # A bookie that crashed before its first checkpoint leaves only the header.
            severity = Severity.ERROR if slots else Severity.WARNING
            text, system = "no page of locations", "reading the last entry id fails: ShortReadException"
            yield Fault(NAME, 0, size, Kind.TRUNCATED, f"{size} bytes, {text}", severity, system, 0)
        elif slots % SLOT:
            text = f"{slots % SLOT} bytes at the end are not a complete location"
            system = "the bookie ignores them; reading the last entry id fails if a page is incomplete"
            yield Fault(
                NAME, size - slots % SLOT, slots % SLOT, Kind.TRUNCATED, text, Severity.WARNING, system, 0
            )

    def _wrong(self, locations: Int64s) -> Iterator[Fault]:
        bad = np.flatnonzero(
            (locations < 0) | ((locations != 0) & ((locations & 0xFFFFFFFF) < FIRST_POSITION))
        )
        for entry in bad[:_MOST_FAULTS].tolist():
            text = f"the location of entry {entry} is {int(locations[entry]):#x}, which is in no entry log"
            place = HEADER_SIZE + SLOT * entry
            yield Fault(NAME, place, SLOT, Kind.LINK, text, Severity.WARNING, "reading the entry fails", 0)
        if len(bad) > _MOST_FAULTS:
            place, more = HEADER_SIZE + SLOT * int(bad[_MOST_FAULTS]), len(bad) - _MOST_FAULTS
            length = HEADER_SIZE + SLOT * (int(bad[-1]) + 1) - place
            yield Fault(
                NAME, place, length, Kind.LINK, f"{more} more locations like this", Severity.WARNING, "", 0
            )

    def decode(
        self, window: Window, frames: Frames, table: str, columns: Sequence[str], context: IndexContext
    ) -> Iterator[Decoded]:
        if not len(frames):
            return
        schema = self.tables[table].schema(columns)
        if table == "frames":
            row = {"position": 0, "size": len(window.data), "payload": window.data.tobytes()}
            yield Decoded(
                pa.RecordBatch.from_pylist([row], schema=FRAMES.schema(FRAMES.names(detail=True))).select(
                    columns
                )
            )
            return
        locations = locations_of(window.data)
        entries = np.flatnonzero(locations)
        for first in range(0, len(entries), 1 << 20):
            entry = entries[first : first + (1 << 20)]
            location = locations[entry]
            values = {
                "entry_id": entry,
                "location": location,
                "log_id": location >> 32,
                "offset": location & 0xFFFFFFFF,
            }
            ledger = np.full(len(entry), context.ledger or 0)
            arrays = [
                numbers(pa.int64(), ledger, np.full(len(entry), context.ledger is None))
                if name == "ledger_id"
                else numbers(pa.int64(), values[name])
                for name in columns
            ]
            yield Decoded(pa.RecordBatch.from_arrays(arrays, schema=schema))

    def file_facts(
        self, head: Window, size: int, tail: bytes, zeros: int, context: IndexContext
    ) -> Mapping[str, Any]:
        info = FileInfo.of(head.data[:HEADER_SIZE].tobytes() if size != _OLDEST else head.data.tobytes())
        return {
            "ledger_id": context.ledger, "version": info.version, "master_key": info.master_key, "state_bits": info.state_bits,
            "fenced": bool(info.state_bits & FENCED), "explicit_lac": info.explicit_lac or None,
        }  # fmt: skip

    def resync(self, window: Window, at: int, context: IndexContext) -> tuple[int, int]:
        return -1, 0

    def encode(
        self, rows: pa.Table, frames: pa.Table | None, file: pa.Table | None, context: IndexContext
    ) -> Iterator[Chunk]:
        entries, locations = self._locations(rows, most_entries(context.options[PAGE.name]))
        stored = single_value(frames, "payload")
        if stored is not None and self._holds(stored, entries, locations):
            yield stored
        elif single_value(file, "frames") == 0 and not len(entries):
            yield from ending_bytes(file)
        else:
            try:
                yield index_bytes(self._info(file, context), entries, locations, context.options[PAGE.name])
            except DescriptionError as error:
                raise UsageError(f"{NAME}: {error}") from None

    def _locations(self, rows: pa.Table, most: int) -> tuple[Int64s, Int64s]:
        """Return entry ids, which are below `most`, and locations. Raises `UsageError`."""
        if "location" not in rows.column_names and not {"log_id", "offset"} <= set(rows.column_names):
            raise UsageError(f"{NAME} needs a column 'location', or 'log_id' and 'offset'")
        if "location" not in rows.column_names:
            log, offset = (
                rows[name].cast(pa.int64()).fill_null(-1).to_numpy() for name in ("log_id", "offset")
            )
            rows = rows.append_column("location", pa.array(log << 32 | offset, pa.int64()))
        absent = [name for name in ("ledger_id", "log_id", "offset") if name not in rows.column_names]
        for name in absent:
            rows = rows.append_column(name, pa.nulls(rows.num_rows, pa.int64()))
        table = conform(NAME, rows, ROWS)
        if len(table["ledger_id"].drop_null().unique()) > 1:
            raise UsageError(f"{NAME}: rows of several ledgers", advice="Each ledger has its own file")
        entries, locations = table["entry_id"].to_numpy(), table["location"].to_numpy()
        bad = np.flatnonzero((entries < 0) | (entries >= most))
        if len(bad):
            row = int(bad[0])
            raise UsageError(
                f"{NAME}: entry_id of row {row} is {int(entries[row])}, expected 0 to {most - 1}"
            )
        return entries, locations

    def _holds(self, stored: bytes, entries: Int64s, locations: Int64s) -> bool:
        kept = locations_of(np.frombuffer(stored, np.uint8))
        used = np.flatnonzero(kept)
        return bool(np.array_equal(used, entries) and np.array_equal(kept[used], locations))

    def _info(self, file: pa.Table | None, context: IndexContext) -> FileInfo:
        """Return the header from the file table, or from options."""
        if file is not None and single_value(file, "version") is not None:
            values = {
                name: single_value(file, name)
                for name in ("version", "master_key", "state_bits", "explicit_lac")
            }
            return FileInfo(**{name: value for name, value in values.items() if value is not None})
        passwords, ledger = context.options[PASSWORD.name], context.ledger or 0
        password = b"" if passwords is None else passwords.of(ledger) or b""
        state = FENCED if context.options[IS_FENCED.name] else 0
        return FileInfo(context.options[VERSION.name], master_key(password), state)


CODEC = Index()
