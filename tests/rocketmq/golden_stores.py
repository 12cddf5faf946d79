"""The golden stores of RocketMQ and the recorded results of real releases."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from memory_directory import MemoryDirectory

from logwright.codec.rocketmq.formats.config import TOPICS
from logwright.codec.rocketmq.store.tree import is_log

HOME = Path(__file__).resolve().parents[2] / "corpora" / "golden" / "rocketmq"
CASES: dict[str, dict[str, Any]] = {
    path.name: json.loads((path / "case.json").read_text()) for path in sorted(HOME.glob("*/"))
}
HEALTHY = [name for name, case in CASES.items() if case["kind"] != "damaged"]
CODECS = {
    "commitlog": "rocketmq.commitlog",
    "disk1": "rocketmq.commitlog",
    "disk2": "rocketmq.commitlog",
    "consumequeue": "rocketmq.consumequeue",
    "batchconsumequeue": "rocketmq.batchconsumequeue",
    "consumequeue_ext": "rocketmq.consumequeue_ext",
    "index": "rocketmq.indexfile",
    "checkpoint": "rocketmq.checkpoint",
    "abort": "rocketmq.abort",
    "abort.bak": "rocketmq.abort",
    "timerlog": "rocketmq.timerlog",
    "config/topics.json": "rocketmq.topics",
    "config/consumerOffset.json": "rocketmq.consumer_offsets",
    "config/delayOffset.json": "rocketmq.delay_offsets",
    "config/timercheck": "rocketmq.timercheck",
}
"""Codecs by a file's first folder or path."""


@cache
def store(case: str) -> dict[str, Path]:
    """Return the files of a store by name. A damaged store also has the unchanged files of its base."""
    own = _files(HOME / case / "store")
    base = CASES[case].get("base")
    if base is None:
        return own
    return {name: path for name, path in {**store(base), **own}.items() if name in CASES[case]["files"]}


def directory(case: str, *, logs_only: bool = False) -> MemoryDirectory:
    """Return a store as the layout lists it: the second commit log path is a separate root."""
    files = {}
    for name, path in store(case).items():
        for disk, root in (("disk1/commitlog", "commitlog"), ("disk2/commitlog", "storePathCommitLog-2")):
            name = name.replace(f"{disk}/", f"{root}/")
        if name != "timerwheel.gz" and (not logs_only or is_log(name)):
            files[name] = path.read_bytes()
    batches = CASES[case]["config"].get("x.batchTopics")
    if batches:
        row = {
            "topic": batches, "read_queue_nums": 4, "write_queue_nums": 4, "perm": 6, "topic_filter_type": "SINGLE_TAG",
            "topic_sys_flag": 0, "order": False, "attributes": [{"key": "queue.type", "value": "BatchCQ"}],
        }  # fmt: skip
        files["config/topics.json"] = TOPICS.form(
            pa.Table.from_pylist([row], schema=TOPICS.tables["rows"].schema())
        )
    return MemoryDirectory(files, "store")


def _files(folder: Path) -> dict[str, Path]:
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}


def codec_of(name: str) -> str:
    return CODECS.get(name.removesuffix(".bak"), CODECS.get(name.partition("/")[0], ""))


def own_files(case: str, *codecs: str) -> Iterator[tuple[Path, str]]:
    """Yield the files stored for this case only, each with its codec."""
    for name, path in _files(HOME / case / "store").items():
        codec = codec_of(name)
        if codec and (not codecs or codec in codecs):
            yield path, codec


@dataclass
class Run:
    """A real release's run on a store: its record of kind `store`, and the records of other kinds."""

    name: str
    store: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def units(self, kind: str = "message") -> list[list[Any]]:
        return [
            [line["topic"], line["queue"], line["cq_offset"], line["phy"], line["size"]]
            for line in self.lines.get(kind, [])
        ]


@cache
def runs(case: str) -> dict[str, Run]:
    """Return the runs of a case. The first one is recorded in full."""
    out: dict[str, Run] = {}
    for line in gzip.decompress((HOME / case / "truth.jsonl.gz").read_bytes()).decode().splitlines():
        loaded = json.loads(line)
        run = out.setdefault(loaded["run"], Run(loaded["run"]))
        if loaded["kind"] == "store":
            run.store = loaded
        else:
            run.lines.setdefault(loaded["kind"], []).append(loaded)
    return out


def first(case: str) -> Run:
    return next(iter(runs(case).values()))


def readable(case: str, run: Run) -> list[list[Any]] | None:
    """Return topic, queue, queue offset, physical offset and size of each message that a run could read, or None if unknown."""
    message = run.lines.get("messages", [None])[0]
    if message is None:
        return run.units() if "message" in run.lines or run.store.get("readable") == 0 else None
    if "readable" in message:
        units: list[list[Any]] = message["readable"]
        return units
    base = CASES[case].get("base")
    return first(base).units() if base is not None and not first(case).units() else first(case).units()
