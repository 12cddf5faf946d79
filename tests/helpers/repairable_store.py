"""A fake store that can be repaired: each `NNN.toy` has an index `NNN.ids`, the ids of its frames in 8 bytes each.

Its system trusts an existing `.ids` and creates a missing one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_store import FRAMES_CODEC, HEAD, FakeStore, ToyNote, frame, know

from logwright.codec.capability import DirectoryCapabilities, DirectoryRepair
from logwright.codec.engine.repair import OutputFile, Removed, RepairPlan, Strategy
from logwright.codec.fault import DamageError, Fault, UsageError
from logwright.codec.option import Option, Options, parse_bool
from logwright.codec.store.extents import Copy
from logwright.codec.store.listing import Listing, Plan, Role
from logwright.codec.window import Window
from logwright.readers import listing

Spans = list[tuple[int, int, int]]
"""Good frames: id, start, stop."""


def ids(*numbers: int) -> bytes:
    return b"".join(struct.pack(">q", number) for number in numbers)


def good_and_bad(data: bytes) -> tuple[Spans, list[Fault]]:
    """Return the good frames of a file and the faults between them."""
    full_window = Window(np.frombuffer(data, np.uint8).copy(), 0, len(data))
    context = FRAMES_CODEC.context("x.toy", Options(FRAMES_CODEC.options))
    good: Spans = []
    bad: list[Fault] = []
    at = 0
    while at < len(data):
        frames = FRAMES_CODEC.scan(full_window, at, context)
        good += zip(
            frames.header["id"].tolist() if len(frames) else [],
            frames.start.tolist(),
            frames.end.tolist(),
            strict=True,
        )
        if frames.damage is None:
            break
        place, _ = FRAMES_CODEC.resync(full_window, frames.stop + 1, context)
        at = len(data) if place < 0 else place
        bad.append(replace(frames.damage, length=at - frames.stop))
    return good, bad


class StoreRepair(RepairPlan):
    def __init__(self, listing: Listing) -> None:
        super().__init__(listing)
        self.output_files: list[OutputFile] = []
        self.dropped: set[str] = set()
        self.ids = {"first_id": 0}
        self.notes, self.before_you_start = ["a warning"], ["dust it"]

    def outputs(self) -> Iterator[OutputFile]:
        yield from self.output_files


class RepairableStore(FakeStore):
    """A fake store that can be repaired."""

    repair_options = (Option("drop.readme", False, "Leave what is no toy away.", parse_bool),)
    rebuilds: Sequence[str] = ("ids", "nothing")

    @property
    def capabilities(self) -> DirectoryCapabilities:  # type: ignore[override]
        """Created at each access, so that tests can replace a method."""
        return DirectoryCapabilities(
            repair=DirectoryRepair(self.repair, self.rebuild, self.rebuilds, self.repair_options)
        )

    def plan(self, listing: Listing, options: Options) -> Plan:
        plan = super().plan(listing, options)
        files = [
            replace(file, role=Role.DERIVED, note="") if file.name.endswith(".ids") else file
            for file in plan.files
        ]
        return replace(plan, files=tuple(files))

    def staging(self, name: str, token: str) -> str:
        return f"{name}.{token}-gone"

    def order(self, names: Iterable[str]) -> Sequence[str]:
        return sorted(names, key=lambda name: (name.partition(".")[0], name.endswith(".ids")))

    def repair(
        self,
        copies: Sequence[Listing],
        plans: Sequence[Plan],
        strategy: Strategy,
        options: Options,
        *,
        correct: bool = True,
    ) -> StoreRepair:
        repair = StoreRepair(copies[0])
        names = [file.name for file in plans[0].files if file.role is Role.PRIMARY]
        over = False
        for name in names:
            if over:
                repair.dropped |= {name, f"{name[:-4]}.ids"}
                repair.cut.append(Removed(name, 0, len(copies[0].read(name)), "behind the damage"))
                continue
            over = self._repair_file(repair, copies, plans, name, strategy) and strategy is Strategy.PREFIX
        self._others(repair, plans[0], options["drop.readme"])
        return repair

    def _repair_file(
        self,
        repair: StoreRepair,
        copies: Sequence[Listing],
        plans: Sequence[Plan],
        name: str,
        strategy: Strategy,
    ) -> bool:
        """Repair one file. Return whether it was damaged."""
        held = [
            good_and_bad(copy.read(name)) if any(file.name == name for file in plan.files) else ([], [])
            for copy, plan in zip(copies, plans, strict=True)
        ]
        taken: dict[int, tuple[int, int, int]] = {}
        for copy, (good, bad) in enumerate(held):
            for id, start, stop in good:
                if strategy is Strategy.SALVAGE or not bad or start < bad[0].offset:
                    if (
                        id in taken
                        and copies[copy].read(name)[start:stop]
                        != copies[taken[id][0]].read(name)[slice(*taken[id][1:])]
                    ):
                        raise UsageError(f"the copies diverged at id {id}")
                    taken.setdefault(id, (copy, start, stop))
        pieces = [Copy(name, start, stop, copy) for _, (copy, start, stop) in sorted(taken.items())]
        repair.output_files += [
            OutputFile(name, pieces, name),
            OutputFile(f"{name[:-4]}.ids", [ids(*sorted(taken))]),
        ]
        repair.rows += len(taken)
        lost = 0 if len(copies) > 1 else None
        repair.cut += [
            Removed(name, bad.offset, bad.length, str(bad.kind), rows_lost=lost) for bad in held[0][1]
        ]
        return bool(held[0][1])

    def rebuild(self, listing: Listing, plan: Plan, kinds: Sequence[str], options: Options) -> StoreRepair:
        repair = StoreRepair(listing)
        for file in plan.files:
            if file.role is not Role.PRIMARY:
                continue
            good, bad = good_and_bad(listing.read(file.name))
            if bad:
                raise DamageError.of(bad[0], file.name)
            repair.output_files.append(repair.unchanged(file.name))
            if "ids" in kinds:
                index = ids(*(id for id, _, _ in good))
                repair.output_files.append(OutputFile(f"{file.name[:-4]}.ids", [index], file.name))
            repair.rows += len(good)
        self._others(repair, plan, False, "ids" not in kinds)
        return repair

    def _others(self, repair: StoreRepair, plan: Plan, drop_readme: bool, keep_ids: bool = False) -> None:
        present = {output_file.name for output_file in repair.output_files} | repair.dropped
        for file in plan.files:
            left_out = drop_readme if file.name == "README" else file.name.endswith(".ids") and not keep_ids
            if file.name not in present and not left_out:
                repair.output_files.append(repair.unchanged(file.name))


LAYOUT = RepairableStore()


@pytest.fixture
def repairable_store(monkeypatch: pytest.MonkeyPatch) -> RepairableStore:
    """Make the registry know the fake codecs and layout, and nothing else."""
    known = ({"toy.frames": FRAMES_CODEC, "toy.note": ToyNote()}, {"toy.store": LAYOUT})
    know(monkeypatch, *known)
    monkeypatch.setattr(listing, "_staging_names", lambda: frozenset({LAYOUT.inner_staging}))
    return LAYOUT


def flip_byte(data: bytes, at: int) -> bytes:
    """Return the data with one byte changed."""
    return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


FRAMES = {id: frame(id, b"text %d" % id) for id in range(12)}
SIZE = len(FRAMES[0])


def joined(*numbers: int) -> bytes:
    return b"".join(FRAMES[number] for number in numbers)


DAMAGED: Mapping[str, bytes] = {
    "000.toy": joined(0, 1, 2),
    "000.ids": ids(0, 1, 2),
    "003.toy": flip_byte(joined(3, 4, 5, 6), SIZE + HEAD.size),
    "003.ids": ids(3, 4, 5, 6),
    "007.toy": joined(7, 8),
    "009.ids": ids(9),
    "NOTE": b"note:mine",
    "README": b"not a toy",
}
"""Frame 4 is damaged, one index is missing, and one belongs to no file."""

REST = {"NOTE": b"note:mine", "README": b"not a toy"}
SALVAGED: Mapping[str, bytes] = {
    "000.toy": joined(0, 1, 2),
    "000.ids": ids(0, 1, 2),
    "003.toy": joined(3, 5, 6),
    "003.ids": ids(3, 5, 6),
    "007.toy": joined(7, 8),
    "007.ids": ids(7, 8),
    **REST,
}
PREFIX: Mapping[str, bytes] = {
    "000.toy": joined(0, 1, 2),
    "000.ids": ids(0, 1, 2),
    "003.toy": joined(3),
    "003.ids": ids(3),
    **REST,
}


def write_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def read_files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
