"""The layout `kafka.logdir`, for writing. For reading, the partitions are separate stores (`logdir.LogDirectory`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from logwright.codec.base import Match
from logwright.codec.deferred import deferred
from logwright.codec.kafka.formats.quorum_state import METADATA_PARTITION
from logwright.codec.kafka.names import (
    CHECKPOINTS,
    CLEAN_SHUTDOWN_FILE,
    CLEANER_FILE,
    LOCK_FILE,
    META_PROPERTIES_FILE,
    delete_directory,
    place_of,
)
from logwright.codec.kafka.options import LOG_DIRECTORY
from logwright.codec.kafka.store.partition import LAYOUT as PARTITION
from logwright.codec.layout import Layout
from logwright.codec.option import Options
from logwright.codec.store.build import Builder, Placement, Stage, Summary
from logwright.codec.store.listing import Listing, Plan, PlannedFile, Role
from logwright.codec.store.view import Part

if TYPE_CHECKING:
    from logwright.codec.kafka.store import logdir_builder
else:
    logdir_builder = deferred("logwright.codec.kafka.store", "logdir_builder")

NAME = "kafka.logdir"
_OWN = {*CHECKPOINTS, CLEANER_FILE, CLEAN_SHUTDOWN_FILE, LOCK_FILE, META_PROPERTIES_FILE}


class LogDirectoryLayout(Layout):
    """A log directory. A broker reads the regular files of its folders, whose names must be those of partitions."""

    name = NAME
    title = "Kafka log directory: the partitions on one disk"
    views = PARTITION.views
    default_view = PARTITION.default_view
    options = LOG_DIRECTORY
    folders = tuple(f"{start}*-{'[0-9]' * digits}" for start in ("", ".") for digits in range(1, 11))
    nouns = PARTITION.nouns
    inner_staging = delete_directory("logwright", "0" * 32)
    """A broker that starts here deletes this folder. Any other name would prevent the start."""
    withheld = (META_PROPERTIES_FILE,)
    trial_row = MappingProxyType({"topic": "topic", "partition": 0})

    def recognise(self, listing: Listing) -> Match:
        names = [entry.name for entry in listing.entries()]
        known = any(name in _OWN or place_of(name) is not None for name in names)
        return Match.NAME if known else Match.NO

    def plan(self, listing: Listing, options: Options) -> Plan:
        return Plan(tuple(PlannedFile(file.name, file.size, _role(file.name)) for file in listing.entries()))

    def parts(self, listing: Listing, plan: Plan, view: str, options: Options) -> Sequence[Part]:
        return ()

    def locks(self) -> Sequence[str]:
        return (LOCK_FILE,)

    def order(self, names: Iterable[str]) -> Sequence[str]:
        """Return the files of each partition in its own order, then files that concern all partitions. meta.properties is last: without it a
        broker does not start."""
        folders: dict[str, list[str]] = {}
        own = []
        for name in sorted(names):
            folder, slash, file = name.partition("/")
            if slash:
                folders.setdefault(folder, []).append(file)
            else:
                own.append(name)
        inner = [f"{folder}/{file}" for folder, files in folders.items() for file in PARTITION.order(files)]
        return [*inner, *sorted(own, key=lambda name: (name == META_PROPERTIES_FILE, name))]

    def builder(
        self,
        listing: Listing | None,
        name: str,
        options: Options,
        *,
        staged: bool = False,
        extra: Stage | None = None,
    ) -> Builder:
        return logdir_builder.LogDirectoryBuilder(options, None if staged else listing, staged=staged)

    def assemble(
        self,
        listing: Listing | None,
        name: str,
        parts: Sequence[tuple[Stage, Summary]],
        extra: Stage,
        options: Options,
    ) -> Placement:
        return logdir_builder.assemble(listing, parts, extra, options).ordered(self.order)


def _role(name: str) -> Role:
    """Return the role of a file. The cluster's own metadata is foreign: no rows can replace it."""
    if name in _OWN:
        return Role.METADATA
    if place_of(name) is None or name.startswith(f"{METADATA_PARTITION}/"):
        return Role.FOREIGN
    return Role.PRIMARY


LAYOUT = LogDirectoryLayout()
