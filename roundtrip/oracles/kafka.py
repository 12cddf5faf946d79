"""Kafka 4.3.0 as a judge of files: its readers, builders, loader and tools on local paths.

Bytes are `bytes` here, hex only on the way. Names are Kafka's. Calls take milliseconds once the JVM runs, which the first
one starts. A broker is in `kafka_broker`.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from logwright.roundtrip.oracles.java import SHARED, JavaError, OracleError, Project, Session

VERSION = "4.3.0"

_SOURCES = Path(__file__).parent / "java" / "kafka"

PROJECT = Project(_SOURCES / "pom.xml", _SOURCES, SHARED)

# Log lines as `WARN LogLoader - [LogLoader partition=orders-0] ...`
LOG_FLAGS = (
    "-Dorg.slf4j.simpleLogger.showThreadName=false",
    "-Dorg.slf4j.simpleLogger.showShortLogName=true",
)

SESSION = Session(
    PROJECT,
    "logwright.oracle.kafka.Oracle",
    "-Xmx1g",
    *LOG_FLAGS,
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)

# The files that a broker derives from the segments. Other files of a partition directory are primary or temporary.
DERIVED = (".index", ".timeindex", ".txnindex", ".snapshot")

__all__ = [
    "VERSION",
    "JavaError",
    "OracleError",
    "available",
    "batches",
    "build",
    "compact",
    "dump",
    "formatted",
    "hash_map_order",
    "load",
    "read_snapshot",
    "rebuild",
    "records",
    "sanity",
    "spec_of",
    "start",
    "write_snapshot",
]


_SPEC = (
    *("magic", "compression", "timestamp_type", "base_offset", "last_offset", "partition_leader_epoch"),
    *("producer_id", "producer_epoch", "base_sequence", "is_transactional", "delete_horizon_ms"),
)


def available() -> str | None:
    """Return why Kafka cannot be used here; None if it can. The first call fetches the jars."""
    return PROJECT.why_not()


def batches(path: str | Path, *, records: bool = True) -> list[dict[str, Any]]:
    """The batches of one `.log` file by Kafka's own `FileRecords`, in file order.

    Each has position, size, magic, base_offset, last_offset, crc, is_valid, attributes, compression, timestamp_type,
    base_timestamp, max_timestamp, partition_leader_epoch, producer_id, producer_epoch, base_sequence, last_sequence,
    is_transactional, is_control, records_count, delete_horizon_ms; and `records` (offset, timestamp, sequence, size, key,
    value, headers as pairs; control_type and coordinator_epoch in control batches). Where Kafka can't read the records of
    a batch, `error` holds its exception as a dict, and `records` what came before. Raises `JavaError` where it can't go on
    to the next batch. Like Kafka it ends silently at a tail shorter than what the last header claims.
    """
    result, _ = SESSION.ask("batches", path=str(Path(path).absolute()), records=records)
    for batch in result:
        for record in batch.get("records", ()):
            unhex(record)
    return result


def summary(path: str | Path) -> dict[str, Any]:
    """A `.log` file counted by Kafka's own `FileRecords`, every record read: records, batches, last_offset, valid (every
    checksum is right), and digest, the CRC-32C of all keys and values one after the other."""
    _, done = SESSION.ask("summary", path=str(Path(path).absolute()))
    return dict(done)


def records(path: str | Path) -> list[dict[str, Any]]:
    """The records of a `.log` file, or of all of them in a directory in name order, flat.

    Each has its own fields (see `batches`) and those of its batch under `batch`; control records are among them. Raises
    `JavaError` at the first record that Kafka can't read.
    """
    path = Path(path)
    files = sorted(path.glob("*.log")) if path.is_dir() else [path]
    rows: list[dict[str, Any]] = []
    for file in files:
        for batch in batches(file):
            own = batch.pop("records")
            if "error" in batch:
                raise JavaError(batch["error"])
            rows.extend(
                {**record, "timestamp_type": batch["timestamp_type"], "batch": batch} for record in own
            )
    return rows


def build(*specs: Mapping[str, Any]) -> bytes:
    """Batches by Kafka's own `MemoryRecordsBuilder`, one after the other.

    A spec may have: magic (2), compression ("none", "gzip", "snappy", "lz4", "zstd"), level, timestamp_type ("CreateTime",
    "LogAppendTime"), log_append_time, base_offset (0), partition_leader_epoch (-1), producer_id, producer_epoch,
    base_sequence (-1), is_transactional, delete_horizon_ms, last_offset (to end beyond the last record), buffer (the
    builder's initial size, 1024), and either `records`: dicts of offset (else the next), timestamp (-1), key, value (bytes
    or None), headers (pairs of bytes; the key must be UTF-8); or `control`: {"type": "COMMIT" | "ABORT", "timestamp",
    "coordinator_epoch"}, or any other control type with its `value` as bytes.
    """
    _, done = SESSION.ask("build", batches=[hexed(spec) for spec in specs])
    return bytes.fromhex(done)


def spec_of(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with which `build` rebuilds a batch of `batches`; the same library versions give the same bytes.

    Not for LogAppendTime, where the broker overwrites the header of a batch that keeps the producer's base timestamp.
    """
    spec = {name: batch[name] for name in _SPEC if batch[name] is not None}
    if batch["is_control"]:
        (marker,) = batch["records"]
        spec["control"] = {
            "type": marker["control_type"],
            "timestamp": marker["timestamp"],
            **(
                {"coordinator_epoch": marker["coordinator_epoch"]}
                if "coordinator_epoch" in marker
                else {"value": marker["value"]}
            ),
        }
    else:
        spec["records"] = batch["records"]
    return spec


def formatted(formatter: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> list[Any]:
    """Return the parsed JSON that a message formatter of the console consumer, named by its class, prints for each key and value.

    None for a record that it leaves out, `{"error": ...}` for one that it cannot read.
    """
    asked = [hexed({"key": key, "value": value}) for key, value in records]
    items, _ = SESSION.ask(
        "formatted", formatter=f"org.apache.kafka.tools.consumer.{formatter}", records=asked
    )
    return items


def dump(path: str | Path | Iterable[str | Path], *flags: str, check: bool = True) -> str:
    """Return the output of `DumpLogSegments` for one or several files; with `check=False` also its errors if it fails.

    The tool cuts an index whose length is odd to whole entries, so it gets a copy of indexes.
    """
    paths = [Path(path)] if isinstance(path, str | Path) else [Path(each) for each in path]
    with tempfile.TemporaryDirectory(prefix="logwright-oracle-") as temporary:
        shown = {}
        for number, item in enumerate(paths):
            item = item.absolute()
            if item.suffix in (".index", ".timeindex"):
                beside = Path(temporary, str(number))
                beside.mkdir()
                for suffix in (".index", ".timeindex"):
                    if item.with_suffix(suffix).exists():
                        shutil.copyfile(item.with_suffix(suffix), beside / item.with_suffix(suffix).name)
                (beside / item.with_suffix(".log").name).symlink_to(item.with_suffix(".log"))
                shown[str(beside)] = str(item.parent)
                item = beside / item.name
            paths[number] = item
        _, done = SESSION.ask("dump", args=["--files", ",".join(map(str, paths)), *flags], timeout=600)
    output = str(done["out"])
    if check and done["status"]:
        raise OracleError(
            f"DumpLogSegments ended with status {done['status']}: {done['err'].strip() or output}"
        )
    output += str(done["err"])
    for copy, original in shown.items():
        output = output.replace(copy, original)
    return output


def sanity(directory: str | Path) -> list[dict[str, Any]]:
    """Return the errors that Kafka's own checks find in the derived and small files of a partition or log directory.

    `sanityCheck()` of the three indexes, `ProducerStateManager.readSnapshot`, and the readers of the epoch checkpoint,
    partition.metadata and the log directory's checkpoints. Each error has file, class, message, causes, trace.
    """
    directory = Path(directory).absolute()
    with tempfile.TemporaryDirectory(prefix="logwright-oracle-") as temporary:
        # Kafka's classes truncate an index to complete entries when they close it.
        copy = Path(temporary, directory.name)
        copy.mkdir()
        for path in directory.iterdir():
            if path.is_file() and path.suffix != ".log":
                shutil.copyfile(path, copy / path.name)
        checked, _ = SESSION.ask("sanity", dir=str(copy))
    errors = [item for item in checked if "class" in item]
    for error in errors:
        error["message"] = (error["message"] or "").replace(str(copy), str(directory))
    return errors


def load(
    directory: str | Path,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    index_interval_bytes: int = 4096,
    segment_index_bytes: int = 10 * 1024 * 1024,
    producer_id_expiration_ms: int = 2**31 - 1,
    config: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Load a partition directory and close it, IN PLACE, exactly as a broker does (`LogLoader`, then a clean close).

    Returns log_start_offset, log_end_offset, first_unstable_offset, segments (base_offset, size). The directory must be
    named `<topic>-<n>`. Raises `JavaError` where the broker would not open it. No leader is elected, so nothing is added
    to leader-epoch-checkpoint.
    """
    _, done = SESSION.ask(
        "load",
        dir=str(Path(directory).absolute()),
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        producer_id_expiration_ms=producer_id_expiration_ms,
        config={
            "index.interval.bytes": str(index_interval_bytes),
            "segment.index.bytes": str(segment_index_bytes),
            **(config or {}),
        },
    )
    return dict(done)


def compact(
    directory: str | Path,
    now: int,
    *,
    clean: bool = False,
    first_dirty: int | None = None,
    roll: bool = False,
    dedupe_buffer: int = 4 << 20,
    config: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Load a partition directory at the time `now`, clean it once by Kafka's own `Cleaner`, and close it, IN PLACE.

    All records count as replicated. `config` are settings of the topic, `first_dirty` is the cleaner's checkpoint. Returns first_dirty,
    first_uncleanable and next_dirty, and if there was something to clean messages_read, messages_written and invalid. The files that the
    broker is about to delete are removed. Raises `JavaError` where the cleaner fails.
    """
    directory = Path(directory).absolute()
    _, done = SESSION.ask(
        "compact",
        dir=str(directory),
        now=now,
        clean=clean,
        first_dirty=first_dirty,
        roll=roll,
        log_start_offset=0,
        producer_id_expiration_ms=86_400_000,
        dedupe_buffer=dedupe_buffer,
        io_buffer=512 << 10,
        config=dict(config or {}),
        timeout=120.0,
    )
    for path in directory.glob("*.deleted"):
        path.unlink()
    return dict(done)


def start(properties: Mapping[str, str], *, timeout: float = 60.0) -> dict[str, Any]:
    """Start Kafka's own server with these settings in the oracle's process, then stop it.

    Returns started, and either live_dirs (the log directories that are not offline) or error: class and message of the
    exception that ends the start, or of the fatal fault, as a dict. Without an exception the class is None and the message is
    that of the last line at ERROR level.
    """
    _, done = SESSION.ask("start", properties=dict(properties), timeout=timeout)
    error = done.get("error")
    if error is not None and error["class"].endswith("$ExitCalled"):
        done["error"] = _fatal(done["log"])
    return dict(done)


_FATAL = re.compile(r"ERROR (?:SharedServer|ProcessTerminatingFaultHandler) - ")
_THROWN = re.compile(r"(?P<class>[a-z]\w*(?:\.\w+)+)(?:: (?P<message>.*))?")


def _fatal(log: str) -> dict[str, Any]:
    """Return the first fatal fault in a log."""
    lines = log.splitlines()
    for number, line in enumerate(lines[:-1]):
        thrown = _THROWN.fullmatch(lines[number + 1])
        if _FATAL.match(line) and thrown:
            return {"class": thrown["class"], "message": thrown["message"]}
    ends = re.search(r"^ERROR .*?(Shutdown broker because .*)$", log, re.MULTILINE)
    return {"class": None, "message": ends[1] if ends else ""}


def rebuild(directory: str | Path, index_interval_bytes: int = 4096, **options: Any) -> dict[str, bytes]:
    """Return the derived files that Kafka makes from the `.log` files alone: name to bytes, including leader-epoch-checkpoint.

    Works on a copy. `options` are those of `load`.
    """
    directory = Path(directory)
    with tempfile.TemporaryDirectory(prefix="logwright-oracle-") as temporary:
        copy = Path(temporary, directory.absolute().name)
        copy.mkdir()
        for log in directory.glob("*.log"):
            shutil.copyfile(log, copy / log.name)
        load(copy, index_interval_bytes=index_interval_bytes, **options)
        return {
            path.name: path.read_bytes()
            for path in sorted(copy.iterdir())
            if path.suffix in DERIVED or path.name == "leader-epoch-checkpoint"
        }


def hash_map_order(
    ids: Iterable[int], removed: Iterable[int] = (), *, cleared: Iterable[int] = ()
) -> list[int]:
    """Return the iteration order of a `java.util.HashMap<Long, ?>` after inserting `ids` in order and removing `removed`.

    `ProducerStateManager.producers` is such a map (made with the default capacity), so this is the order of the entries
    in a producer snapshot. Loading a snapshot puts its entries in file order. `cleared` are put first and cleared again:
    the table keeps the size it has grown to.
    """
    _, done = SESSION.ask("hash_map_order", ids=list(ids), removed=list(removed), cleared=list(cleared))
    return list(done)


def read_snapshot(path: str | Path) -> list[dict[str, int]]:
    """The entries of a producer snapshot by `ProducerStateManager.readSnapshot`, in file order.

    producer_id, producer_epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch,
    current_txn_first_offset; "none" is -1.
    """
    _, done = SESSION.ask("read_snapshot", path=str(Path(path).absolute()))
    return list(done)


def write_snapshot(entries: Iterable[Mapping[str, int]]) -> bytes:
    """A producer snapshot by `ProducerStateManager.writeSnapshot`, from entries (as of `read_snapshot`) put into its map."""
    with tempfile.TemporaryDirectory(prefix="logwright-oracle-") as temporary:
        path = Path(temporary, f"{0:020d}.snapshot")
        SESSION.ask("write_snapshot", path=str(path), entries=[dict(entry) for entry in entries])
        return path.read_bytes()


def unhex(record: dict[str, Any]) -> dict[str, Any]:
    """Convert key, value and headers of a record from hex digits to bytes, in place."""
    for name in ("key", "value"):
        record[name] = _bytes(record[name])
    record["headers"] = [(_bytes(key), _bytes(value)) for key, value in record["headers"]]
    return record


def _bytes(digits: str | None) -> bytes | None:
    return None if digits is None else bytes.fromhex(digits)


def hexed(value: Any) -> Any:
    """Convert a request for JSON: bytes become hex digits."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return {key: hexed(element) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return [hexed(element) for element in value]
    return value
