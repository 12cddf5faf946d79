"""Build a log directory from rows: the partition of each topic and partition number, and the checkpoints."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.deferred import compute as pc
from logwright.codec.fault import UsageError
from logwright.codec.kafka.formats import meta_properties as meta
from logwright.codec.kafka.formats import partition_metadata as metadata
from logwright.codec.kafka.formats.checkpoint import OFFSETS
from logwright.codec.kafka.formats.log import arrow_input
from logwright.codec.kafka.formats.quorum_state import METADATA_TOPIC
from logwright.codec.kafka.names import (
    CHECKPOINTS,
    LOG_START_FILE,
    META_PROPERTIES_FILE,
    METADATA_FILE,
    is_partition,
    parse_directory,
)
from logwright.codec.kafka.options import LOG_DIRECTORY, WRITING
from logwright.codec.kafka.store.builder import RETENTION_MS, PartitionBuilder, new_topic_id
from logwright.codec.kafka.store.evidence import read_checkpoint
from logwright.codec.kafka.store.folders import FolderOf, OwnFiles, StagedFolderOf, files_by_folder, inside
from logwright.codec.kafka.store.partition import LAYOUT as PARTITION
from logwright.codec.option import Options
from logwright.codec.single_frame import ParseError
from logwright.codec.store.build import Parts, Piece, Placement, Stage, Summary
from logwright.codec.store.listing import Listing

_PARTITION_OPTIONS = tuple(option for option in WRITING if option in LOG_DIRECTORY)
_SHOWN = 4
"""The number of topics that a message names."""


class LogDirectoryBuilder:
    """See `codec.store.build.Builder`. With a listing it appends to a log directory."""

    def __init__(self, options: Options, listing: Listing | None = None, *, staged: bool = False) -> None:
        self.folders, self.staged = None if listing is None else OwnFiles(listing), staged
        self.settings = Settings(options, listing)
        self.partitions: dict[str, PartitionBuilder] = {}

    def add(self, rows: pa.RecordBatch) -> Iterator[Piece]:
        for name, part in split(rows):
            if name not in self.partitions:
                folder = None if self.staged or self.folders is None else self.folders.partition(name)
                options = self.settings.of(name, folder)
                self.partitions[name] = PARTITION.builder(folder, name, options, staged=self.staged)  # type: ignore[assignment]
            yield from inside(name, self.partitions[name].add(part))

    def finish(self) -> Iterator[Piece]:
        for name, partition in self.partitions.items():
            yield from inside(name, partition.finish())
        if not self.staged:
            yield from self.settings.own_files(self._summaries())

    def summary(self) -> Summary:
        parts = self._summaries()
        if self.staged:
            return Summary(sum(part.rows for part in parts.values()), facts={"partitions": parts})
        oldest = [part.facts["oldest"] for part in parts.values() if part.facts["oldest"] is not None]
        return self.settings.summary(parts, min(oldest, default=None))

    def _summaries(self) -> dict[str, Summary]:
        return {name: partition.summary() for name, partition in self.partitions.items()}


def assemble(listing: Listing | None, parts: Parts, extra: Stage, options: Options) -> Placement:
    """See `Layout.assemble`."""
    settings = Settings(options, listing)
    folders = None if listing is None else OwnFiles(listing)
    files = {id(stage): files_by_folder(stage) for stage, _ in parts}
    names = sorted({name for _, summary in parts for name in summary.facts["partitions"]})
    renames: list[tuple[Stage, str, str]] = []
    summaries: dict[str, Summary] = {}
    oldest: list[int] = []
    for name in names:
        own = [
            (stage, summary.facts["partitions"][name])
            for stage, summary in parts
            if name in summary.facts["partitions"]
        ]
        oldest += [summary.facts["oldest"] for _, summary in own if summary.facts["oldest"] is not None]
        folder = None if folders is None else folders.partition(name)
        staged = [
            (StagedFolderOf(stage, name, files[id(stage)].get(name, ())), summary) for stage, summary in own
        ]
        placement = PARTITION.assemble(
            folder, name, staged, StagedFolderOf(extra, name, ()), settings.of(name, folder)
        )
        summaries[name] = placement.summary
        for stage, file, final in placement.renames:
            assert isinstance(stage, StagedFolderOf)
            renames.append((stage.stage, f"{name}/{file}", f"{name}/{final}"))
    for piece in settings.own_files(summaries):
        extra.append(piece.name, piece.data)
        renames.append((extra, piece.name, piece.name))
    return Placement(tuple(renames), settings.summary(summaries, min(oldest, default=None)))


def stored_offsets(listing: Listing, file: str) -> dict[tuple[str, int], int]:
    """Return the offsets in a checkpoint of a log directory, by topic and partition; none if it is absent. Raises `UsageError`."""
    try:
        return dict(read_checkpoint(listing, file) or {})
    except ParseError as error:
        raise UsageError(
            f"{file} cannot be parsed: {error.message}", advice="Correct or remove it first"
        ) from None


def pack_offsets(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """Return the content of a checkpoint."""
    return OFFSETS.pack([(*place, offset) for place, offset in offsets.items()])


def split(rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each partition in order, with the name of its directory. Raises `UsageError`."""
    if not rows.num_rows:
        return
    topic, partition = (_required(rows, name) for name in ("topic", "partition"))
    try:
        topics = pc.dictionary_encode(topic.cast(pa.string()))
        numbers = np.asarray(partition.cast(pa.int32())).astype(np.int64)
    except pa.ArrowException as error:
        raise UsageError(f"topic must be text and partition a number: {error}") from None
    words = topics.dictionary.to_pylist()
    code = np.asarray(topics.indices).astype(np.int64) << 32 | numbers & 0xFFFFFFFF
    order = np.argsort(code, kind="stable")
    codes, firsts = np.unique(code[order], return_index=True)
    ordered = rows if len(codes) == 1 else rows.take(pa.array(order))
    for each, (start, stop) in zip(codes.tolist(), pairwise([*firsts.tolist(), len(code)]), strict=True):
        word, number = words[each >> 32], (each & 0xFFFFFFFF ^ 1 << 31) - (1 << 31)
        name = f"{word}-{number}"
        if number < 0 or word == METADATA_TOPIC or not is_partition(name):
            raise UsageError(
                f"{name!r} is not a valid partition name",
                advice="Topics have up to 249 letters, digits, '.', '_' and '-'; partitions count from 0",
            )
        yield name, ordered.slice(start, stop - start)


def _required(rows: pa.RecordBatch, name: str) -> pa.Array[Any]:
    """Return a column that must have no nulls."""
    column = arrow_input.column(rows, name)
    if column is None or column.null_count:
        place = "the rows have no" if column is None else "there are nulls in the"
        raise UsageError(
            f"{place} column {name!r}, but a log directory has many partitions",
            advice="Add the columns topic and partition, or write a kafka.partition",
        )
    return column


class Settings:
    """The options of a log directory, and the files of an existing one that concern all partitions."""

    def __init__(self, options: Options, listing: Listing | None) -> None:
        self.options, self.listing = options, listing
        self.ids = _topic_ids(options["topic.ids"])
        self._passed = set(self.ids)
        self._files = {} if listing is None else {entry.name: entry.size for entry in listing.entries()}
        self._check_identity()

    def of(self, name: str, folder: FolderOf | None) -> Options:
        """Return the options of a partition. All partitions of a topic have one topic id."""
        where = parse_directory(name)
        assert where is not None
        values = {
            option.name: self.options[option.name]
            for option in _PARTITION_OPTIONS
            if self.options.given(option.name)
        }
        if folder is None or where.topic in self._passed:
            if where.topic not in self.ids:
                self.ids[where.topic] = self._stored_id(where.topic) or new_topic_id()
            values["topic.id"] = self.ids[where.topic]
        return Options(WRITING, values)

    @cached_property
    def _metadata_files(self) -> dict[str, str]:
        """The partition.metadata of one partition of each topic of the existing log directory."""
        files: dict[str, str] = {}
        for file in self._files:
            folder, _, name = file.rpartition("/")
            if (
                name == METADATA_FILE
                and is_partition(folder)
                and (where := parse_directory(folder)) is not None
            ):
                files.setdefault(where.topic, file)
        return files

    def _stored_id(self, topic: str) -> str | None:
        """Return the id that another partition of the topic has."""
        file = self._metadata_files.get(topic)
        if file is None or self.listing is None:
            return None
        return metadata.unpack(self.listing.read(file))[1]

    # Files that concern all partitions

    def own_files(self, parts: Mapping[str, Summary]) -> Iterator[Piece]:
        """Return the checkpoints, and last meta.properties. All rows are on disk, so each log is flushed and committed to its end."""
        ends: dict[tuple[str, int], int] = {}
        for name, summary in parts.items():
            where = parse_directory(name)
            if where is not None and "last_offset" in summary.ids:
                ends[where] = summary.ids["last_offset"] + 1
        for file in CHECKPOINTS:
            entries = {} if self.listing is None else stored_offsets(self.listing, file)
            if file != LOG_START_FILE:
                entries |= ends
            yield Piece(file, pack_offsets(entries), done=True)
        if META_PROPERTIES_FILE in self._files and self.listing is not None:
            # Rewritten last: without it a broker does not start while the files of a commit are being renamed.
            yield Piece(META_PROPERTIES_FILE, self.listing.read(META_PROPERTIES_FILE), done=True)
        elif self._has_identity:
            identity = meta.pack(
                self.options["cluster.id"],
                self.options["node.id"],
                self.options["directory.id"] or new_topic_id(),
            )
            yield Piece(META_PROPERTIES_FILE, identity, done=True)

    @property
    def _has_identity(self) -> bool:
        return bool(self.options["cluster.id"]) and self.options["node.id"] is not None

    def _check_identity(self) -> None:
        options = self.options
        cluster, node, directory = options["cluster.id"], options["node.id"], options["directory.id"]
        if bool(cluster) != (node is not None) or (directory and not cluster):
            raise UsageError("meta.properties needs both cluster.id and node.id")
        if directory and not metadata.is_topic_id(directory):
            raise UsageError(f"directory.id: {directory!r} is not a UUID in URL-safe base64 (22 characters)")
        if not cluster or META_PROPERTIES_FILE not in self._files or self.listing is None:
            return
        try:
            stored = meta.parse_meta_properties(self.listing.read(META_PROPERTIES_FILE))
        except meta.MetaPropertiesError as error:
            raise UsageError(f"meta.properties cannot be parsed: {error}") from None
        if (stored.cluster_id, stored.node_id) != (cluster, node):
            raise UsageError(
                f"the directory is of cluster {stored.cluster_id}, node {stored.node_id}; expected {cluster}, node {node}",
                advice="Omit cluster.id and node.id to keep those of the directory",
            )

    # The result

    def summary(self, parts: Mapping[str, Summary], oldest: int | None) -> Summary:
        rows = sum(part.rows for part in parts.values())
        warnings = tuple(f"{name}: {text}" for name, part in parts.items() for text in part.warnings)
        offsets = {name: part.ids.get("last_offset") for name, part in sorted(parts.items())}
        written = sorted({where.topic for where in map(parse_directory, parts) if where is not None})
        topic_ids = {topic: self.ids[topic] for topic in written if topic in self.ids}
        if unused := sorted(self._passed.difference(written)):
            warnings += (f"topic.ids has topics without rows: {', '.join(unused)}",)
        ids = {"partitions": len(parts), "last_offsets": offsets, "topic_ids": topic_ids}
        return Summary(rows, ids, warnings, tuple(self._advice(topic_ids, oldest)))

    def _advice(self, topics: Mapping[str, str], oldest: int | None) -> Iterator[str]:
        if META_PROPERTIES_FILE not in self._files and not self._has_identity:
            yield (
                "The directory has no meta.properties, so a broker does not start on it. Pass cluster.id and node.id, or run"
                " `kafka-storage format --ignore-formatted`."
            )
        new = [f"{topic} {id_}" for topic, id_ in topics.items()]
        if new:
            more = f" and {len(new) - _SHOWN} more" if len(new) > _SHOWN else ""
            yield (
                f"The topics must exist in the cluster with these topic ids: {', '.join(new[:_SHOWN])}{more}. A KRaft broker treats"
                " a partition with another id as stray."
            )
        if oldest is not None and time.time_ns() // 1_000_000 - oldest > RETENTION_MS:
            yield (
                "Set retention.ms=-1 and retention.bytes=-1 on the topics. Otherwise the broker deletes records of this age within"
                " minutes of its start."
            )


def _topic_ids(text: str) -> dict[str, str]:
    """Parse option topic.ids."""
    out: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        topic, _, id_ = item.partition("=")
        if not is_partition(f"{topic}-0") or not metadata.is_topic_id(id_):
            raise UsageError(
                f"topic.ids: {item!r} is not TOPIC=ID",
                advice="An id is a UUID in URL-safe base64 (22 characters)",
            )
        if topic in out:
            raise UsageError(f"topic.ids: topic {topic!r} is given twice")
        if id_ in out.values():
            raise UsageError(f"topic.ids: id {id_} is given to two topics")
        out[topic] = id_
    return out
