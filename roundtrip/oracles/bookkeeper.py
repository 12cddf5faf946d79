"""BookKeeper's own classes as a judge of bookies' files: readers of single files, and a bookie with a client.

Names are BookKeeper's. One bookie runs at a time. Its directories are named relative to the JVM's working directory, as in the cookies and
the exceptions, and are links there to those of the store.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logwright.roundtrip.oracles.java import SHARED, JavaError, OracleError, Project, Session

__all__ = [
    "Entry", "JavaError", "Ledger", "LedgerServed", "OracleError", "Started", "add", "available", "check", "cookie", "last_mark", "ledgers_map",
    "read", "recover", "scan_journal", "scan_log", "start", "stop",
]  # fmt: skip

VERSION = "4.18.0"
BOOKIE_ID = "127.0.0.1:3181"
INSTANCE = "0893fd37-717a-4b85-9948-a911175eebeb"
_SOURCES = Path(__file__).parent / "java" / "bookkeeper"
_PROJECT = Project(_SOURCES / "pom.xml", _SOURCES, SHARED)
_HOME = Path(tempfile.gettempdir())
_MOST_STARTS = 150
"""Failed bookies leak threads and memory, so the JVM is restarted after this number."""
_HEAP = ("-Xmx600m", "-Xmn64m", "-XX:MaxDirectMemorySize=2g")
"""The heap size with which the golden answers were recorded. Nearly all of it is free for large arrays."""


class _Oracle:
    """The JVM and its working directory."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="logwright-bookie-"))
        self.session = Session(_PROJECT, "logwright.oracle.bookkeeper.Oracle", *_HEAP, folder=self.home)
        self.starts = 0
        atexit.register(self.close)

    def link(self, root: Path) -> None:
        """Link the directories of a store into the working directory.

        A bookie that has failed may still check its disks, and creates directories that are missing. So links are replaced by renaming.
        """
        names = {path.name for path in root.iterdir() if path.is_dir()}
        for path in self.home.iterdir():
            if path.is_symlink() and path.name not in names:
                path.unlink()
        for name in names:
            fresh, link = self.home / ".link", self.home / name
            fresh.symlink_to((root / name).absolute())
            if link.is_dir() and not link.is_symlink():
                shutil.rmtree(link)
            fresh.rename(link)

    def close(self) -> None:
        self.session.close()
        shutil.rmtree(self.home, ignore_errors=True)


_oracles: list[_Oracle] = []


def _oracle() -> _Oracle:
    if not _oracles:
        _oracles.append(_Oracle())
    return _oracles[0]


available = _PROJECT.why_not
"""Return why it is not available here; None if it is. The first call fetches its jars."""


def _ask(op: str, **fields: Any) -> tuple[list[Any], Any]:
    return _oracle().session.ask(op, **fields)


# Files


@dataclass(frozen=True)
class Entry:
    """An entry in an entry log. `position` is that of its size. A content of less than 16 bytes has no `entry_id`."""

    position: int
    ledger_id: int
    entry_id: int | None
    content: bytes


def scan_log(ledger_dir: str | Path, log: int) -> list[Entry]:
    """Return the entries that `scanEntryLog` passes on. Raises `JavaError` where it throws."""
    items, _ = _ask("scan_log", ledger_dir=_path(ledger_dir), log=log)
    return [
        Entry(item["position"], item["ledger_id"], item["entry_id"], bytes.fromhex(item["content"]))
        for item in items
    ]


def ledgers_map(ledger_dir: str | Path, log: int) -> dict[int, int]:
    """Return the bytes of each ledger by the ledgers map of an entry log. Raises `JavaError` if it has none."""
    return dict(_ask("ledgers_map", ledger_dir=_path(ledger_dir), log=log)[1])


def scan_journal(
    journal_dir: str | Path, ledger_dir: str | Path, identity: int
) -> tuple[list[tuple[int, int, bytes]], int]:
    """Return the records that `scanJournal` passes on (version, position, body), and the position where it ends."""
    items, end = _ask(
        "scan_journal", journal_dir=_path(journal_dir), ledger_dir=_path(ledger_dir), id=identity, position=0
    )  # fmt: skip
    return [(item["version"], item["position"], bytes.fromhex(item["body"])) for item in items], end


def last_mark(journal_dir: str | Path, ledger_dir: str | Path) -> tuple[int, int]:
    """Return the journal id and the offset of lastMark."""
    identity, offset = _ask("last_mark", journal_dir=_path(journal_dir), ledger_dir=_path(ledger_dir))[1]
    return identity, offset


def cookie(ledger_dir: str | Path) -> str:
    """Return the cookie of a directory as the bookie would write it."""
    return str(_ask("cookie", ledger_dir=_path(ledger_dir))[1])


def _path(path: str | Path) -> str:
    return str(Path(path).absolute())


# A bookie


@dataclass(frozen=True)
class Ledger:
    """A ledger as a client knows it. `digest`: CRC32C, CRC32, MAC or DUMMY. `entries`: those to ask a storage for that lists none."""

    ledger_id: int
    digest: str
    password: bytes = b""
    entries: Sequence[int] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "ledger_id": self.ledger_id, "digest": self.digest, "password": self.password.hex(), "entries": list(self.entries),
        }  # fmt: skip


@dataclass(frozen=True)
class Started:
    """`exception`: the chain of exceptions, outermost first, if the bookie does not start."""

    started: bool
    exception: tuple[str, ...] = ()


@dataclass
class LedgerServed:
    """A ledger of a bookie. A value of a call that throws is the chain of exceptions."""

    fenced: Any
    master_key: Any
    explicit_lac: Any
    served: dict[int, bytes] = field(default_factory=dict)
    """The contents of the entries that the storage reads."""
    refused: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """The exceptions of the entries that the storage does not read."""
    error: str = ""
    """Why a client cannot open the ledger."""
    read: list[int] | None = None
    """The entries that a client reads; None if it was not asked, or cannot open the ledger."""
    failed: dict[int, str] = field(default_factory=dict)


def start(root: str | Path, config: Mapping[str, Any], instance: str = INSTANCE) -> Started:
    """Start a bookie on the directories below `root`, which it changes. `config` has properties of `ServerConfiguration`.

    The metadata store is new. It has the cookie that the configuration requires, and no ledgers.
    """
    oracle = _oracle()
    oracle.starts += 1
    if oracle.starts % _MOST_STARTS == 0:
        oracle.session.close()
    else:
        stop()
    oracle.link(Path(root))
    settings = {
        "bookieId": BOOKIE_ID,
        "journalDirectories": "journal",
        "ledgerDirectories": "ledger",
        **config,
    }
    _, done = _ask(
        "start", config={name: str(value) for name, value in settings.items()}, instance_id=instance
    )
    if not done["started"] and "DbLedgerStorage" in settings.get("ledgerStorageClass", ""):
        # A failed bookie does not close its RocksDB, which locks the directory's name.
        oracle.session.close()
    here = f"{oracle.home}/"
    return Started(done["started"], tuple(text.replace(here, "") for text in done.get("exception", ())))


def read(ledgers: Iterable[Ledger] = ()) -> dict[int, LedgerServed]:
    """Read all ledgers of the running bookie: from its storage, and those in `ledgers` through a client."""
    items, _ = _ask("read", timeout=600, ledgers=[ledger.to_json() for ledger in ledgers])
    out: dict[int, LedgerServed] = {}
    for item in items:
        ledger = item["ledger_id"]
        if item["kind"] == "ledger":
            fenced, key, lac = (
                item[name] if name in item else tuple(item[f"{name}_error"])
                for name in ("fenced", "master_key", "explicit_lac")
            )
            out[ledger] = LedgerServed(fenced, key, lac)
        elif item["kind"] == "client":
            out[ledger].error = item.get("error", "")
            out[ledger].read = item.get("read")
            out[ledger].failed = {int(entry): error for entry, error in item.get("failed", {}).items()}
        elif "content" in item:
            out[ledger].served[item["entry_id"]] = bytes.fromhex(item["content"])
        else:
            out[ledger].refused[item["entry_id"]] = tuple(item["error"])
    return out


def check() -> list[dict[str, Any]]:
    """Return the inconsistencies between index and entry logs that the running bookie detects."""
    return _ask("check")[0]


def add(ledger: Ledger, rows: Sequence[Mapping[str, Any]], *, new: bool = False) -> None:
    """Add entries (`payload`) to a new ledger of the running bookie by a client, or (with `entry_id`, `last_add_confirmed` and `length`) to
    an existing one."""
    sent = [{**row, "payload": row["payload"].hex()} for row in rows]
    _ask("add", ledger=ledger.to_json(), rows=sent, new=new)


def recover(ledger: Ledger) -> int:
    """Open a ledger of the running bookie with recovery, which fences and closes it. Return its last entry."""
    return int(_ask("recover", ledger=ledger.to_json())[1])


def stop() -> None:
    """Stop the running bookie cleanly, if there is one."""
    _ask("stop")
