"""Random RocketMQ stores with random damage, and both answers to what a broker does with them: ours and the real store's."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from golden_stores import CASES, directory
from memory_directory import MemoryDirectory

import logwright as lw
from logwright.codec.option import Options
from logwright.codec.rocketmq.formats.commitlog.layout import MESSAGE
from logwright.codec.rocketmq.startup.start import STARTUP, ServedStore
from logwright.codec.rocketmq.store.layout import LAYOUT
from logwright.corpora.damage import Input
from logwright.corpora.damage_apply import Surgeon
from logwright.corpora.damage_ops import parse
from logwright.roundtrip.oracles import rocketmq as oracle

TIME = 1_700_000_000_000
TOPICS = ("Orders", "Payments", "%RETRY%group", "SCHEDULE_TOPIC_XXXX")
GOLDEN = (
    "cqext", "lmq", "batchcq", "props", "propcrc", "v2topic", "ipv6", "expired", "rolled", "compressed", "killed", "batch", "w432",
    "recovered", "hand_base",
)  # fmt: skip
NOT_BEFORE_5 = ("batchcq", "lmq", "v2topic")
COMPARED = ("commitlog", "consumequeue", "index", "batchconsumequeue", "consumequeue_ext")
"""The folders whose files are compared after the start."""
_NOT_NUMBERS = ("body", "born_host", "store_host", "topic", "properties")
_TRIES = 8
VARIANTS = 8
"""The number of consecutive seeds that damage the same store."""
Op = dict[str, Any]


class SameNameError(Exception):
    """The real store always creates two index files of the same name."""


def rows(chance: random.Random) -> list[dict[str, Any]]:
    """Return random messages in the order of their store times."""
    topics = chance.sample(TOPICS, chance.randrange(1, 4))
    step, out, time = chance.choice([1, 200, 900]), [], TIME
    longest = chance.choice([20, 200, 700])
    for number in range(chance.randrange(4, 70)):
        time += chance.randrange(2 * step)
        row: dict[str, Any] = {
            "topic": chance.choice(topics), "queue_id": chance.randrange(3), "store_timestamp_ms": time,
            "body": chance.randbytes(chance.randrange(longest)),
        }  # fmt: skip
        if chance.random() < 0.7:
            row["keys"] = " ".join(f"k{chance.randrange(20)}" for _ in range(chance.randrange(1, 4)))
        if chance.random() < 0.5:
            row["tags"] = chance.choice(["a", "b", "long tag"])
        if row["topic"] == "SCHEDULE_TOPIC_XXXX":
            row["properties"] = [{"key": "DELAY", "value": str(number % 20)}]
        if chance.random() < 0.1:
            row["sys_flag"] = chance.choice([4, 8, 12])
        out.append(row)
    return out


def geometry(chance: random.Random) -> dict[str, int]:
    return {
        "mappedFileSizeCommitLog": chance.choice([1024, 2048, 4096, 16384]),
        "mappedFileSizeConsumeQueue": 20 * chance.randrange(3, 12),
        "maxHashSlotNum": chance.randrange(3, 20),
        "maxIndexNum": chance.randrange(4, 60),
    }


def files_of(home: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(home)): path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()
    }


class Damager:
    """Draws operations of `logwright.damage` for a store."""

    def __init__(self, home: Path, chance: random.Random, options: dict[str, int]) -> None:
        self.home, self.chance, self.options = home, chance, options
        self.files = files_of(home)

    def names(self, folder: str) -> list[str]:
        return sorted(name for name in self.files if name.startswith(f"{folder}/"))

    def draw(self) -> list[Op]:
        kinds: list[Callable[[], list[Op]]] = [self.log_bytes] * 5 + [self.log_field] * 4 + [self.queue] * 5
        kinds += [self.index, self.index, self.checkpoint, self.checkpoint, self.whole_file, self.whole_file]
        kinds += [self.batch_queue] * 5 if self.names("batchconsumequeue") else []
        kinds += [self.extension] * 5 if self.names("consumequeue_ext") else []
        return self.chance.choice(kinds)()

    def _at(self, name: str) -> int:
        """Return a random position, most often among the used bytes."""
        data = self.files[name]
        used = min(len(data.rstrip(b"\0")) + 60, len(data))
        return self.chance.randrange(used if self.chance.random() < 0.9 else len(data))

    def _of(self, folder: str) -> str | None:
        """Return a random file, half of the time the last."""
        names = self.names(folder)
        return None if not names else self.chance.choice([names[-1], self.chance.choice(names)])

    def log_bytes(self) -> list[Op]:
        name = self._of("commitlog")
        if name is None:
            return []
        at, left = self._at(name), len(self.files[name])
        length = min(self.chance.choice([1, 4, 30, 300]), left - at)
        return [
            self.chance.choice(
                (
                    {"op": "flip", "file": name, "at": at, "bit": self.chance.randrange(8)},
                    {"op": "flip", "file": name, "at": at, "bit": self.chance.randrange(8)},
                    {"op": "zero", "file": name, "at": at, "length": length},
                    {"op": "write", "file": name, "at": at, "hex": self.chance.randbytes(length).hex()},
                )
            )
        ]

    def log_field(self) -> list[Op]:
        """Set a field of a message. Sometimes its checksums are recomputed."""
        name = self._of("commitlog")
        if name is None:
            return []
        fields = [field.name for field in MESSAGE.fields if field.name not in _NOT_NUMBERS]
        values = (0, 1, -1, 7, 100, 1 << 20, (1 << 31) - 1, -(1 << 31))
        change = self.chance.choice(
            ({"value": self.chance.choice(values)}, {"add": self.chance.choice([1, -1, 8])})
        )
        frame = self.chance.choice([0, -1, 1, 2])
        field = self.chance.choice(fields)
        return [{"op": "set", "file": name, "frame": frame, "field": field, **change}]

    def _units(self, folder: str, width: int, base: int) -> tuple[str, int] | None:
        name = self._of(folder)
        if name is None:
            return None
        return name, base + self._at(name) // width * width

    def queue(self) -> list[Op]:
        """Change a unit: its offset, size or tag, all of it to zero, or to another unit."""
        place = self._units("consumequeue", 20, 0)
        if place is None:
            return []
        name, at = place
        data = self.files[name]
        other = data[self.chance.randrange(len(data)) // 20 * 20 :][:20]
        phy = self.chance.choice([-1, 0, 1, 500, 5000, 1 << 40])
        return [
            self.chance.choice(
                (
                    {"op": "write", "file": name, "at": at, "hex": phy.to_bytes(8, "big", signed=True).hex()},
                    {
                        "op": "write",
                        "file": name,
                        "at": at + 8,
                        "hex": self.chance.choice(["00000000", "7fffffff", "0000000a", "ffffffff"]),
                    },
                    {"op": "flip", "file": name, "at": at + 12, "bit": self.chance.randrange(8)},
                    {"op": "zero", "file": name, "at": at, "length": 20},
                    {"op": "zero", "file": name, "at": at, "length": len(data) - at},
                    {"op": "write", "file": name, "at": at, "hex": other.hex()},
                    {"op": "flip", "file": name, "at": self._at(name), "bit": self.chance.randrange(8)},
                )
            )
        ]

    def batch_queue(self) -> list[Op]:
        """Change a number of a unit, or all of it to zero."""
        place = self._units("batchconsumequeue", 46, 0)
        if place is None:
            return []
        name, at = place
        at = min(at, len(self.files[name]) - 46)
        offset, width = self.chance.choice([(0, 8), (8, 4), (12, 8), (20, 8), (28, 8), (36, 2), (38, 4)])
        value = self.chance.choice([-1, 0, 1, 2, 5, 500, 5000, 1 << 40]) % (1 << 8 * width)
        return [
            self.chance.choice(
                (
                    {
                        "op": "write",
                        "file": name,
                        "at": at + offset,
                        "hex": value.to_bytes(width, "big").hex(),
                    },
                    {
                        "op": "write",
                        "file": name,
                        "at": at + offset,
                        "hex": value.to_bytes(width, "big").hex(),
                    },
                    {"op": "zero", "file": name, "at": at, "length": 46},
                    {"op": "flip", "file": name, "at": self._at(name), "bit": self.chance.randrange(8)},
                    {"op": "remove", "file": name},
                )
            )
        ]

    def extension(self) -> list[Op]:
        name = self._of("consumequeue_ext")
        if name is None:
            return []
        at = self._at(name)
        length = min(self.chance.choice([1, 2, 20, 60]), len(self.files[name]) - at)
        return [
            self.chance.choice(
                (
                    {"op": "flip", "file": name, "at": at, "bit": self.chance.randrange(8)},
                    {"op": "zero", "file": name, "at": at, "length": length},
                    {"op": "write", "file": name, "at": at, "hex": self.chance.randbytes(length).hex()},
                    {"op": "remove", "file": name},
                )
            )
        ]

    def index(self) -> list[Op]:
        name = self._of("index")
        if name is None:
            return []
        at = self.chance.choice([self._at(name), self.chance.randrange(40)])
        word = self.chance.choice([-1, 0, 1, 2, 3, 1 << 30]).to_bytes(4, "big", signed=True).hex()
        return [
            self.chance.choice(
                (
                    {"op": "flip", "file": name, "at": at, "bit": self.chance.randrange(8)},
                    {
                        "op": "write",
                        "file": name,
                        "at": min(at // 4 * 4, len(self.files[name]) - 4),
                        "hex": word,
                    },
                    {
                        "op": "zero",
                        "file": name,
                        "at": at,
                        "length": min(40, len(self.files[name]) - at),
                    },
                    {"op": "cut", "file": name, "at": at},
                )
            )
        ]

    def checkpoint(self) -> list[Op]:
        """Set a value of the checkpoint to another time or offset, or all to zero."""
        size = self.options["mappedFileSizeCommitLog"]
        value = self.chance.choice(
            (0, TIME + self.chance.randrange(60_000), TIME + (1 << 40), self.chance.randrange(8 * size), -1)
        )
        at = 8 * self.chance.choice([0, 1, 1, 2, 2, 5, 5])
        hexed = value.to_bytes(8, "big", signed=True).hex()
        return [
            self.chance.choice(
                (
                    {"op": "write", "file": "checkpoint", "at": at, "hex": hexed},
                    {"op": "write", "file": "checkpoint", "at": at, "hex": hexed},
                    {"op": "zero", "file": "checkpoint", "at": 0, "length": 64},
                    {"op": "cut", "file": "checkpoint", "at": self.chance.choice([0, 20, 48])},
                    {"op": "remove", "file": "checkpoint"},
                )
            )
        ]

    def whole_file(self) -> list[Op]:
        """Remove, swap, empty or cut files, or add one."""
        folder = self.chance.choice(["commitlog", "commitlog", "consumequeue", "index"])
        name = self._of(folder)
        if name is None:
            return []
        path, _, base = name.rpartition("/")
        size = len(self.files[name])
        beside = [other for other in self.names(path) if other != name]
        after = f"{path}/{int(base) + size:020d}"
        choices: list[list[Op]] = [[{"op": "remove", "file": name}]] * 3
        choices += [[{"op": "cut", "file": name, "at": self.chance.choice([0, size - 20, self._at(name)])}]]
        choices += [[{"op": "insert", "file": name, "at": size, "zeros": 20}]]
        if folder != "index" and after not in self.files:
            # The next file is allocated in advance.
            choices += [[{"op": "create", "file": after, "zeros": size}]] * 2
            choices += [[{"op": "copy", "file": name, "to": after}]]
        if beside:
            other = self.chance.choice(beside)
            rename = [(name, "swapped"), (other, name), ("swapped", other)]
            choices += [[{"op": "rename", "file": old, "to": new} for old, new in rename]] * 2
        if folder == "consumequeue":
            choices += [[{"op": "remove", "file": file} for file in self.names(path)]]
        return self.chance.choice(choices)


@dataclass(frozen=True)
class Damaged:
    """The files of a damaged store."""

    files: dict[str, bytes]
    options: dict[str, Any]
    operations: list[Op]
    version: str
    queries: list[tuple[str, str]]
    batch_topics: tuple[str, ...] = ()

    def place(self, home: Path) -> Path:
        """Write the files below `home`."""
        for name, data in self.files.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_bytes(data)
        return home


class Intact:
    """A store on disk, before its damage."""

    queries: list[tuple[str, str]]
    batch_topics: tuple[str, ...] = ()

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self._folder = tempfile.TemporaryDirectory()
        self.path = Path(self._folder.name, "store")

    def damaged(self, operations: list[Op]) -> tuple[dict[str, bytes], list[Op]]:
        """Carry out operations as `logwright.damage` does, except those that do not apply to what the ones before have left."""
        with Input(str(self.path), "rocketmq.store") as source:
            tree = source.tree()
            surgeon = Surgeon(tree)
            done: list[Op] = []
            for operation in operations:
                with contextlib.suppress(lw.UsageError):
                    surgeon.run(parse(operation))
                    done.append(operation)
            return {
                name: b"".join(bytes(part.data) for part in image.read())
                for name, image in tree.images.items()
            }, done


class Written(Intact):
    """A random store."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(geometry(chance))
        messages = rows(chance)
        self.queries = [(topic, key) for topic in TOPICS for key in ("k0", "k3", "k11", "T#a")]
        split = chance.choice([len(messages), len(messages), len(messages) // 2])
        lw.write(messages[:split], self.path, "rocketmq.store", **self.options)
        if messages[split:]:
            lw.write(messages[split:], self.path, "rocketmq.store", mode="append", **self.options)


class Golden(Intact):
    """A golden store."""

    def __init__(self, case: str, chance: random.Random) -> None:
        config = CASES[case]["config"]
        super().__init__({name: value for name, value in config.items() if not name.startswith("x.")})
        for name, data in directory(case).files.items():
            if name == "config/topics.json" or not name.startswith(("abort", "config/", "timer")):
                path = self.path / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        if "x.batchTopics" in config:
            self.batch_topics = (config["x.batchTopics"],)
        keys = {
            (row["topic"], key)
            for row in lw.read(self.path).to_pylist()
            for key in (row["keys"] or "").split()
        }
        self.queries = chance.sample(sorted(keys), min(len(keys), 6))


@lru_cache(maxsize=1)
def intact(seed: int, version: str) -> Intact:
    chance = random.Random(f"store {seed}")
    if chance.random() < 0.4:
        return Golden(
            chance.choice([case for case in GOLDEN if case not in NOT_BEFORE_5 or version[0] == "5"]), chance
        )
    return Written(chance)


def store_of(seed: int, version: str) -> Damaged:
    """Return a damaged random store. Consecutive seeds damage the same store in different ways."""
    store, chance = intact(seed // VARIANTS, version), random.Random(f"damage {seed}")
    damager = Damager(store.path, chance, store.options)
    operations = [op for _ in range(chance.choice([1, 1, 1, 2, 3])) for op in damager.draw()]
    if chance.random() < 0.5:
        operations.append({"op": "create", "file": "abort", "text": "1"})
    files, done = store.damaged(operations)
    options = {**store.options, "commitLogRecoverMaxNum": chance.choice([10, 2])}
    return Damaged(files, options, done, version, store.queries, store.batch_topics)


def ours(store: Damaged) -> dict[str, Any]:
    """Return the simulated start, in the form of `theirs`."""
    listing = MemoryDirectory(store.files, "store")
    known = {option.name for option in LAYOUT.read_options}
    options = Options(
        LAYOUT.read_options, {name: value for name, value in store.options.items() if name in known}
    )
    started = STARTUP.run(listing, LAYOUT.plan(listing, options), options, version=store.version, clean=None)
    served = started.served
    if not isinstance(served, ServedStore):
        return {"load": False}
    inner = served.store
    queues: dict[tuple[str, int], Any] = {}
    old = store.version.startswith("4.")
    for key, queue in inner.queues.items():
        units, missing = [], []
        number = queue.min_offset
        while number < queue.max_offset:
            pulled, status, following = inner.pull(queue, number)
            units += [
                [
                    None if old else unit.number,
                    # Offset 0 stands for the first file, if its own is missing.
                    unit.phy or inner.log.min_offset,
                    unit.size,
                    inner.decoded(unit.phy, unit.size) is not None,
                ]
                for unit in pulled
            ]
            if status != "FOUND":
                missing.append([number, status, following])
            number = max(following, number + 1)
        if queue.max_offset:
            queues[key] = (queue.min_offset, queue.max_offset, units, missing)
    matches = {query: inner.query(*query, 64) for query in store.queries}
    if old:
        # Releases 4.x tell only the offset that is stored in the message.
        matches = {
            query: [int.from_bytes((inner.message(phy, 36) or b"")[28:], "big", signed=True) for phy in phys]
            for query, phys in matches.items()
        }
    after = {entry.name: started.after.read(entry.name) for entry in started.after.entries()}
    return {
        "load": True, "log": (inner.log.min_offset, inner.max_phy), "queues": queues, "found": matches, "files": comparable(after),
    }  # fmt: skip


def index_files(answer: dict[str, Any]) -> int:
    return sum(name.startswith("index ") for name in answer.get("files", ()))


def without_unanswered(predicted: dict[str, Any], actual: dict[str, Any]) -> dict[str, Any]:
    """Leave out the queries that the real store does not answer."""
    if "found" not in actual or "found" not in predicted:
        return predicted
    return {**predicted, "found": {query: predicted["found"][query] for query in actual["found"]}}


def theirs(store: Damaged, expected_files: int) -> dict[str, Any]:
    """Return what the real store does.

    Two index files that it creates in one millisecond have the same name, so that it writes both into one. It is then asked again,
    until there are `expected_files` of them.
    """
    for _ in range(_TRIES):
        with tempfile.TemporaryDirectory() as folder:
            home = store.place(Path(folder))
            loaded = oracle.load(
                store.version, home, store.options, queries=store.queries, batch_topics=store.batch_topics
            )
            if not loaded.load:
                return {"load": False}
            files = comparable(files_of(home))
        if index_files({"files": files}) >= expected_files:
            break
    else:
        raise SameNameError
    queues = {
        key: (queue.min, queue.max, queue.units, queue.not_found)
        for key, queue in loaded.queues.items()
        if queue.max
    }
    # A query that runs out of memory is left out.
    answered = {query: offsets for query, offsets in loaded.offsets.items() if offsets is not None}
    return {
        "load": True, "log": (loaded.min_phy, loaded.max_phy), "queues": queues, "found": answered, "files": files,
    }  # fmt: skip


def comparable(files: dict[str, bytes]) -> dict[str, Any]:
    """Return the files of the compared folders. Index files are listed in order, because a broker names them after the current time."""
    out: dict[str, Any] = {
        name: data
        for name, data in files.items()
        if name.partition("/")[0] in COMPARED and not name.startswith("index/")
    }
    index = [data for name, data in sorted(files.items()) if name.startswith("index/")]
    # A broker writes the count of an unused file only when it stops.
    index = [data[:36] + (data[36:40].replace(bytes(4), b"\0\0\0\1")) + data[40:] for data in index]
    return {**out, **{f"index {number}": data for number, data in enumerate(index)}}


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> Iterator[str]:
    """Describe how two answers differ."""
    for name in sorted(ours.keys() | theirs.keys()):
        left, right = ours.get(name), theirs.get(name)
        if left == right:
            continue
        if isinstance(left, dict) and isinstance(right, dict):
            for key in sorted(left.keys() | right.keys(), key=str):
                if left.get(key) != right.get(key):
                    yield f"{name} {key}: {_short(left.get(key), right.get(key))} instead of {_short(right.get(key), left.get(key))}"
        else:
            yield f"{name}: {_short(left, right)} instead of {_short(right, left)}"


def _short(value: Any, other: Any) -> str:
    """Return a value as text; of bytes, the part that differs from `other`."""
    if isinstance(value, bytes) and isinstance(other, bytes):
        at = next((i for i, (a, b) in enumerate(zip(value, other, strict=False)) if a != b), 0)
        return f"{len(value)} bytes, at {at}: {value[at : at + 16].hex()}"
    if isinstance(value, tuple) and isinstance(other, tuple):
        # A queue: skip the messages that are the same.
        value = [
            [item for item in part if item not in second] if isinstance(part, list) else part
            for part, second in zip(value, other, strict=True)
        ]
    return str(value)[:300]
