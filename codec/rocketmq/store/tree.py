"""File names of a store, and its geometry (file sizes and index slots), which no file stores.

Source: `StorePathConfigHelper`, `MessageStoreConfig` of RocketMQ.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from logwright.codec.describe import DescriptionError
from logwright.codec.fixed import end_without_zeros
from logwright.codec.frames.walk import ListedFile
from logwright.codec.option import Option, Options, Verb, parse_bool, parse_int, parse_text
from logwright.codec.rocketmq.formats.commitlog.codec import FILE_SIZE
from logwright.codec.rocketmq.formats.config import TOPICS
from logwright.codec.rocketmq.formats.indexfile.codec import HASH_SLOTS, MAX_ENTRIES
from logwright.codec.rocketmq.formats.indexfile.layout import ENTRIES, HEAD, SIZE, SLOTS
from logwright.codec.rocketmq.formats.indexfile.slots import find_slots
from logwright.codec.rocketmq.formats.timer import UNIT as TIMER_UNIT
from logwright.codec.rocketmq.startup.message import DEFAULT_DELAYS, Rules, delays_of, string_hash
from logwright.codec.rocketmq.startup.message_store import StoreConfig
from logwright.codec.store.listing import Entry, Listing
from logwright.codec.store.roots import Root

LOG, QUEUE, BATCH, EXT, INDEX = "commitlog", "consumequeue", "batchconsumequeue", "consumequeue_ext", "index"
TIMER, WHEEL, CONFIG = "timerlog", "timerwheel", "config"
CHECKPOINT, ABORT, LOCK = "checkpoint", "abort", "lock"
TOPICS_FILE, OFFSETS_FILE = f"{CONFIG}/topics.json", f"{CONFIG}/consumerOffset.json"
TIMER_CHECK, DELAYS_FILE = f"{CONFIG}/timercheck", f"{CONFIG}/delayOffset.json"
_FURTHER_LOG = "storePathCommitLog-"
"""The start of the names of the second and later commit log directories. A broker has no folder of this name."""
_COMPACTION, _ROCKSDB = "compaction", "rocksdbstore"
"""Folders of a broker whose files are only copied, as those of RocksDB databases in config/."""
FOLDERS = (
    LOG, f"{_FURTHER_LOG}*", f"{QUEUE}/*/*", f"{BATCH}/*/*", f"{EXT}/*/*", INDEX, TIMER, CONFIG, f"{CONFIG}/*", _COMPACTION,
    f"{_COMPACTION}/*/*/*", _ROCKSDB,
)  # fmt: skip
BARRIER = f"{LOG}/-"
"""A file that keeps a broker from starting. Its size is not that of a commit log file, and it does not sort last."""
_LEAST_TIMER = 120
"""The least size of a timer log file: a unit and a blank record."""
_NUMBER = re.compile(r"[0-9]{1,20}")
_DEFAULTS = {LOG: 1 << 30, QUEUE: 6_000_000, BATCH: 13_800_000, EXT: 50_331_648, TIMER: 104_857_600}

LOG_PATH = Option(
    "storePathCommitLog",
    None,
    "Commit log directories, comma-separated, if not commitlog/",
    parse_text,
)


READ_ONLY = Option(
    "readOnlyCommitLogStorePaths",
    None,
    "Further commit log directories, comma-separated, in which no file is created",
    parse_text,
)


def parse_queue_size(value: Any) -> int:
    """Parse a size, and round it up to units of 20 bytes (`MessageStoreConfig.getMappedFileSizeConsumeQueue`). Raises `ValueError`."""
    return -(-parse_int(value) // 20) * 20


QUEUE_SIZE = Option(
    "mappedFileSizeConsumeQueue",
    None,
    "Size of a consume queue file in bytes; by default that of existing files",
    parse_queue_size,
    low=20,
    high=1 << 30,
)
BATCH_SIZE = Option(
    "mapperFileSizeBatchConsumeQueue",
    None,
    "Size of a batch consume queue file in bytes; by default that of existing files",
    low=46,
)
EXT_SIZE = Option(
    "mappedFileSizeConsumeQueueExt",
    None,
    "Size of a consume queue extension file in bytes; by default that of existing files",
    low=64,
)


TIMER_SIZE = Option(
    "mappedFileSizeTimerLog",
    None,
    "Size of a timer log file in bytes; by default that of existing files",
    low=_LEAST_TIMER,
)


EXT_ENABLED = Option(
    "enableConsumeQueueExt",
    None,
    "Whether consume queues have extensions; by default if the folder exists",
    parse_bool,
)
LMQ = Option(
    "enableLmq",
    None,
    "Whether messages are also dispatched to light message queues; by default if their folders exist",
    parse_bool,
)
RECOVER_MAX = Option(
    "commitLogRecoverMaxNum", 10, "Number of files at the end of the log that 5.4 and later recover", low=1
)
FORCE_CRC = Option(
    "forceVerifyPropCRC", False, "Accept only messages with a correct property __CRC32#", parse_bool
)
CHECK_OFFSET = Option(
    "checkCommitLogOffsetOnRecover",
    False,
    "After an unclean stop, end the log at a message that belongs in another file",
    parse_bool,
)
TIMER_ENABLED = Option(
    "timerWheelEnable",
    True,
    "Whether a broker, from 5.0 on, loads the timer wheel and the timer log",
    parse_bool,
)
TIMER_PRECISION = Option("timerPrecisionMs", 1000, "Milliseconds of a slot of the timer wheel", low=1)


def parse_delays(value: Any) -> str:
    """Check delay levels as `1s 5s 1m`, and return them. Raises `ValueError`."""
    text = parse_text(value)
    delays_of(text)
    return text


DELAY_LEVELS = Option(
    "messageDelayLevel",
    DEFAULT_DELAYS,
    "Delays of the delay levels, from level 1 on. The units of SCHEDULE_TOPIC_XXXX have the delivery times",
    parse_delays,
)
BATCH_TOPICS = Option(
    "batch_topics",
    None,
    "Topics of a new store that have batch consume queues (attribute queue.type=BatchCQ), comma-separated",
    parse_text,
)


def parse_version(value: Any) -> tuple[int, ...]:
    """Parse `5.5.0`. Raises `ValueError`."""
    if isinstance(value, tuple):
        return value
    return tuple(int(part) for part in parse_text(value).split("."))


BROKER_VERSION = Option(
    "broker_version",
    (5, 5, 0),
    "Release of the broker. From 5.4.0 on tags are index keys",
    parse_version,
)
BATCH_ATTRIBUTE = {"key": "queue.type", "value": "BatchCQ"}
GEOMETRY = (FILE_SIZE, QUEUE_SIZE, BATCH_SIZE, EXT_SIZE, HASH_SLOTS, MAX_ENTRIES)
SETTINGS = (
    EXT_ENABLED,
    LMQ,
    RECOVER_MAX,
    FORCE_CRC,
    CHECK_OFFSET,
    DELAY_LEVELS,
    TIMER_SIZE,
    TIMER_ENABLED,
    TIMER_PRECISION,
)
ROOTS = (LOG_PATH, READ_ONLY)
READ_OPTIONS = (*ROOTS, *GEOMETRY, *SETTINGS)


def first(name: str) -> str:
    return name.partition("/")[0]


def is_log(name: str) -> bool:
    """Return whether a file is in a commit log folder."""
    return first(name) == LOG or first(name).startswith(_FURTHER_LOG)


def base_of(name: str) -> int | None:
    """Return the number in a file name, or None if the name is not a number below 2^63."""
    digits = name.rpartition("/")[2]
    return int(digits) if _NUMBER.fullmatch(digits) and int(digits) < 1 << 63 else None


def start_of(name: str) -> int:
    """Return the offset of the first byte of a file, which is the number in its name; 0 for another name."""
    return base_of(name) or 0


def is_padded(name: str) -> bool:
    """Return whether the name of a file is a number of 20 digits. Others are loaded in another order, or not at all."""
    return base_of(name) is not None and len(name.rpartition("/")[2]) == 20


def queue_of(name: str) -> tuple[str, int] | None:
    """Return the topic and queue id of a consume queue file, or None for a file that a broker does not treat as one."""
    parts = name.split("/")
    number = parts[2].removeprefix("-") if len(parts) == 4 else ""
    return (parts[1], int(parts[2])) if number.isdecimal() else None


def has_rocksdb_queues(listing: Listing) -> bool:
    """Return whether the consume queues are in RocksDB (`storeType=defaultRocksDB`), and not in files."""
    names = {entry.name for entry in listing.entries()}
    return f"{QUEUE}/CURRENT" in names and not any(queue_of(name) for name in names if first(name) == QUEUE)


def is_light(queue: tuple[str, int]) -> bool:
    """Return whether this is a light queue, which has messages of other topics."""
    return queue[0].startswith("%LMQ%")


def is_folder_name(topic: str) -> bool:
    """Return whether a folder can have the name of a topic, which may be damaged."""
    return topic not in ("", ".", "..") and not {"/", "\0"} & set(topic)


def is_timer(name: str) -> bool:
    """Return whether this is a file of the timer, or the folder of its log."""
    return first(name) == TIMER or name in (WHEEL, TIMER_CHECK)


def mapped_queue(name: str) -> str:
    """Return the folder of a file; the same one for all files of the commit log, which may be in several."""
    return LOG if is_log(name) else name.rpartition("/")[0]


def _paths(options: Options) -> tuple[list[str], list[str]]:
    """Return the commit log directories, and those in which no file is created. Of a single directory a broker ignores these."""
    value = options[LOG_PATH.name] or ""
    more = options[READ_ONLY.name] or "" if "," in value else ""
    paths, read_only = (
        sorted({path.strip() for path in text.split(",") if path.strip()}) for text in (value, more)
    )
    return [*paths, *(path for path in read_only if path not in paths)], read_only


def roots(options: Options) -> Sequence[Root]:
    """Return the commit log directories. Each may hold some of the files. A broker creates a missing one with its first file
    (`MultiPathMappedFileQueue.load`)."""
    paths, _ = _paths(options)
    names = (f"{_FURTHER_LOG}{i + 1}" if i else LOG for i in range(len(paths)))
    return [Root(name, path, LOG, may_be_absent=True) for name, path in zip(names, paths, strict=True)]


def writable(options: Options) -> list[str]:
    """Return the folders in which commit log files are created, in turn."""
    _, read_only = _paths(options)
    return [root.name for root in roots(options) if root.path not in read_only] or [LOG]


def _log_folders(listing: Listing, options: Options) -> list[str]:
    """Return the folders of the commit log in the order of their paths in a Java `HashSet` (`MultiPathMappedFileQueue.load`)."""
    paths = {root.name: root.path for root in roots(options)}
    spread = 1 << max(int(len(paths) / 0.75).bit_length(), 4)

    def place(folder: str) -> int:
        value = string_hash(paths.get(folder, "")) % (1 << 32)
        return (value ^ value >> 16) % spread

    return sorted({first(entry.name) for entry in listing.entries() if is_log(entry.name)}, key=place)


def logs(listing: Listing) -> list[Entry]:
    """Return the commit log files in numerical order."""
    entries = [entry for entry in listing.entries() if is_log(entry.name) and base_of(entry.name) is not None]
    return sorted(entries, key=lambda entry: (start_of(entry.name), entry.name))


def locate(listing: Listing, phy: int) -> tuple[str, int]:
    """Return the commit log file of a physical offset, and the offset in the file; "" and 0 without one."""
    for entry in logs(listing):
        if 0 <= (at := phy - start_of(entry.name)) < entry.size:
            return entry.name, at
    return "", 0


def copies(listing: Listing) -> dict[str, str]:
    """Return the commit log files that are not read, because another one has the same number, with the names of those that are read.

    These may be in several directories. An interrupted copy may have another size, or zeros at its end.
    """
    size = size_of(logs(listing))

    def content(entry: Entry) -> tuple[bool, int]:
        read = ListedFile(listing, entry.name, entry.size).pread
        return entry.size == size, end_without_zeros(read, 0, entry.size)

    out: dict[str, str] = {}
    for _, same in itertools.groupby(logs(listing), lambda entry: base_of(entry.name)):
        entries = list(same)
        if len(entries) > 1:
            best = max(entries, key=content).name
            out |= {entry.name: best for entry in entries if entry.name != best}
    return out


def _usual(sizes: Iterable[int]) -> int | None:
    """Return the most common nonzero size, or the largest of several, since files are cut off more often than they grow."""
    counts = Counter(size for size in sizes if size)
    return max(counts, key=lambda size: (counts[size], size), default=None)


def size_of(entries: Sequence[Entry]) -> int | None:
    """Return the size that files of one kind have when they are undamaged, or None without files.

    The files of a queue are named after offsets. Where no file is missing, the differences of these are the size.
    """
    queues: dict[str, list[int]] = {}
    for entry in entries:
        queues.setdefault(mapped_queue(entry.name), []).append(start_of(entry.name))
    steps = [
        after - before for bases in queues.values() for before, after in itertools.pairwise(sorted(bases))
    ]
    sizes = [entry.size for entry in entries]
    usual = _usual([*sizes, *(step for step in steps if step in sizes)])
    if usual is not None and sizes.count(usual) == 1 and any(step % usual for step in steps):
        # All files are cut off, each elsewhere.
        return min((step for step in steps if step >= usual), default=usual)
    return usual


def timer_size(entries: Sequence[Entry]) -> int:
    """Return the size of the files of a timer log. Configured sizes are round numbers, so the only file of another size is truncated."""
    usual = size_of(entries) or 0
    odd = len(entries) == 1 and all(usual % unit for unit in (1000, 1024, TIMER_UNIT.min_size))
    return _DEFAULTS[TIMER] if odd or usual < _LEAST_TIMER else usual


def config_of(listing: Listing, options: Options) -> StoreConfig:
    """Return the settings of a store: from options, else from its files, else upstream's defaults."""
    entries = listing.entries()

    def configured_or_usual(folder: str, option: Option, unit: int = 1) -> int:
        files = [
            entry
            for entry in entries
            if (is_log(entry.name) if folder == LOG else first(entry.name) == folder)
            and base_of(entry.name) is not None
        ]
        configured: int | None = options[option.name]
        usual = size_of(files)
        # The only file of a queue may be damaged. Its size was a multiple of a unit.
        return configured or (usual and max(round(usual / unit), 1) * unit) or _DEFAULTS[folder]

    timer = [entry for entry in entries if first(entry.name) == TIMER and base_of(entry.name) is not None]
    slots, room = index_geometry(listing, options)
    folders = {first(entry.name) for entry in entries}
    ext = options[EXT_ENABLED.name]
    has_light_queues = any(entry.name.startswith(f"{QUEUE}/%LMQ%") for entry in entries)
    return StoreConfig(
        configured_or_usual(LOG, FILE_SIZE),
        _log_folders(listing, options),
        configured_or_usual(QUEUE, QUEUE_SIZE, 20),
        configured_or_usual(BATCH, BATCH_SIZE, 46),
        configured_or_usual(EXT, EXT_SIZE),
        slots,
        room,
        ext=EXT in folders if ext is None else ext,
        lmq=has_light_queues if options[LMQ.name] is None else options[LMQ.name],
        batch_topics=batch_topics(listing),
        recover_max=options[RECOVER_MAX.name],
        rules=Rules(force_property_crc=options[FORCE_CRC.name], delays=delays_of(options[DELAY_LEVELS.name])),
        check_offset=options[CHECK_OFFSET.name],
        timer_size=(options[TIMER_SIZE.name] or timer_size(timer)) if options[TIMER_ENABLED.name] else None,
    )


def config_of_new(options: Options) -> StoreConfig:
    """Return the settings of a new store: from options, else upstream's defaults."""
    values = {
        "log_size": options[FILE_SIZE.name] or _DEFAULTS[LOG], "queue_size": options[QUEUE_SIZE.name],
        "batch_queue_size": options[BATCH_SIZE.name], "ext_size": options[EXT_SIZE.name], "slots": options[HASH_SLOTS.name],
        "entries": options[MAX_ENTRIES.name], "ext": options[EXT_ENABLED.name], "lmq": options[LMQ.name],
        "batch_topics": options[BATCH_TOPICS.name] and options[BATCH_TOPICS.name].split(","),
        "rules": Rules(delays=delays_of(options[DELAY_LEVELS.name])),
    }  # fmt: skip
    return StoreConfig(**{name: value for name, value in values.items() if value is not None})


def index_geometry(listing: Listing, options: Options) -> tuple[int, int]:
    """Return the number of slots of an index file, and of entries including entry 0."""
    slots, room = options[HASH_SLOTS.name], options[MAX_ENTRIES.name]
    files = [entry for entry in listing.entries() if first(entry.name) == INDEX and entry.size]
    size = _usual(entry.size for entry in files)
    if size is None:
        return slots or SLOTS, room or ENTRIES
    if slots is None:
        counts = Counter(
            find_slots(ListedFile(listing, entry.name, size).pread, size)
            for entry in files[:8]
            if entry.size == size
        ).most_common(2)
        slots = next((number for number, _ in counts if number > 0), SLOTS)
    return slots, room or max((size - HEAD - 4 * slots) // SIZE, 2)


def content(listing: Listing, name: str, offset: int = 0, length: int | None = None) -> bytes:
    """Return bytes of a file; none if it does not exist."""
    present = any(entry.name == name for entry in listing.entries())
    return listing.read(name, offset, length) if present else b""


def topics(listing: Listing) -> list[dict[str, Any]] | None:
    """Return the rows of `config/topics.json`, or None if it is missing or damaged."""
    try:
        rows: list[dict[str, Any]] = TOPICS.parse(content(listing, TOPICS_FILE)).to_pylist()
    except DescriptionError:
        return None
    return rows


_MOST_QUEUES = (1 << 31) - 1


def with_topics(
    known: Sequence[Mapping[str, Any]], queues: Iterable[tuple[str, int]], batch_topics: Collection[str]
) -> list[Mapping[str, Any]]:
    """Return rows of `config/topics.json`: the known ones, with the topics of these queues added."""
    rows: dict[str, Mapping[str, Any]] = {row["topic"]: row for row in known}
    counts: dict[str, int] = {}
    for topic, queue_id in queues:
        counts[topic] = max(counts.get(topic, 1), min(queue_id + 1, _MOST_QUEUES))
    for topic, count in counts.items():
        row = rows.get(topic)
        if row is not None and row["read_queue_nums"] >= count:
            continue
        new: dict[str, Any] = {
            "topic": topic, "perm": 6, "topic_filter_type": "SINGLE_TAG", "topic_sys_flag": 0, "order": False,
            "attributes": [BATCH_ATTRIBUTE] if topic in batch_topics else [], "write_queue_nums": 0,
        }  # fmt: skip
        old = new if row is None else row
        rows[topic] = {
            **old,
            "read_queue_nums": count,
            "write_queue_nums": max(count, old["write_queue_nums"]),
        }
    return list(rows.values())


def topics_file(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return `config/topics.json` with these rows."""
    return bytes(TOPICS.form(pa.Table.from_pylist(list(rows), schema=TOPICS.tables["rows"].schema())))


def batch_topics(listing: Listing) -> frozenset[str]:
    """Return the topics with batch consume queues: from topics.json, else from the folders."""
    rows = topics(listing)
    if rows is None:
        return topics_in(listing, BATCH)
    return frozenset(row["topic"] for row in rows if BATCH_ATTRIBUTE in row["attributes"])


def topics_in(listing: Listing, folder: str) -> frozenset[str]:
    """Return the topics that have queues in a folder. A broker does not load a store with a batch topic in the other one."""
    queues = [queue_of(entry.name) for entry in listing.entries() if first(entry.name) == folder]
    return frozenset(queue[0] for queue in queues if queue)


def indexes_tags(options: Options) -> bool:
    """Return whether tags are index keys."""
    return tuple(options[BROKER_VERSION.name]) >= (5, 4, 0)


def parse_key(value: Any) -> str:
    """Parse `topic#key`. Raises `ValueError`."""
    text = parse_text(value)
    if "#" not in text:
        raise ValueError("expected TOPIC#KEY")
    return text


KEY = Option(
    "key", None, "TOPIC#KEY: only entries with the hash of this key", parse_key, narrows=True,
    verbs=frozenset({Verb.READ}), views=("index",),
)  # fmt: skip
