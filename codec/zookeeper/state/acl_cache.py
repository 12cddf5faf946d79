"""The ACL table of a tree in memory: lists get numbers as a server gives them, and lose them when no node has them any more.

A list may come as other bytes that Java reads alike: it is one list, known by its forms. What nodes have is a slot: a number, and what
list it is. Source: `ReferenceCountedACLCache` of ZooKeeper.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from logwright.codec.kernels.crc32 import crc32_raw
from logwright.codec.zookeeper.formats.snapshot.acl import AclTable, packed, table_bytes
from logwright.codec.zookeeper.formats.snapshot.layout import OPEN_ACL
from logwright.codec.zookeeper.jute import ACL, Int64s, jute_string, vector
from logwright.codec.zookeeper.state import tree_kernels as at

LIST = vector(ACL)


class AclCache:
    """Arrays for kernels, and what is rare. `state` is that of the tree."""

    def __init__(self, state: Int64s) -> None:
        self._s = state
        self.slots = np.empty((8, at.ACL_FIELDS), np.int64)
        self.forms = np.zeros((32, at.FORM_FIELDS), np.int64)
        """A hash table."""
        self.lists = np.empty(8, np.int64)
        """The slot of each list, -1 for none."""
        self.data = np.empty(1 << 10, np.uint8)
        """The bytes of forms."""
        self._used = self._formed = 0
        self._contents: list[bytes] = []
        self._by_content: dict[bytes, int] = {}

    def add(self, number: int, content: bytes) -> int:
        """Give a list a number; returns its slot."""
        one = self.learn(content)
        slot = self._new_slot(number, 0, one)
        self.lists[one] = slot
        self.reserve(number)
        return slot

    def load(self, table: AclTable) -> None:
        """The table of a snapshot: of numbers that come twice the last one counts."""
        ordered = packed(table.raw.slice(0, len(table.known_ids))).to_pylist()
        for number, content in zip(table.known_ids.tolist(), ordered, strict=True):
            self.add(number, content)

    def reserve(self, number: int) -> None:
        """Numbers up to this one are given to none any more."""
        self._s[at.ACL_INDEX] = max(int(self._s[at.ACL_INDEX]), number)

    def forget_unused(self) -> None:
        """`purgeUnused`."""
        live = self._live()
        for slot in np.flatnonzero((live[:, at.A_REFS] <= 0) & (live[:, at.A_GONE] == 0)).tolist():
            live[slot, at.A_GONE] = self._s[at.ANY_GONE] = 1
            self.lists[live[slot, at.A_LIST]] = -1

    def learn(self, content: bytes) -> int:
        """The list that these bytes are, known by them from now on; and room for a slot of it."""
        self._room_for_slot()
        crc = int(crc32_raw(at.ONES, np.frombuffer(content, np.uint8), 0, len(content)))
        place = crc & len(self.forms) - 1
        while self.forms[place, at.P_SIZE]:
            form = self.forms[place]
            start, size = int(form[at.P_AT]), int(form[at.P_SIZE])
            if form[at.P_HASH] == crc and self.data[start : start + size].tobytes() == content:
                return int(form[at.P_LIST])
            place = place + 1 & len(self.forms) - 1
        said = _as_read(content)
        one = self._by_content.get(said)
        if one is None:
            one = self._by_content[said] = len(self._contents)
            # A count below zero is none.
            self._contents.append(said if content[:1] >= b"\x80" else content)
            self.lists = at.grown(self.lists, one, one + 1)
            self.lists[one] = -1
        end = self._used + len(content)
        self.data = at.grown(self.data, self._used, end)
        self.data[self._used : end] = np.frombuffer(content, np.uint8)
        self.forms[place] = self._used, len(content), crc, one
        self._used, self._formed = end, self._formed + 1
        if 2 * self._formed > len(self.forms):
            self._rehash()
        return one

    def slots_of(self, acls: Int64s) -> Int64s:
        """The slots of numbers; those that the table does not have get one that says so."""
        while True:
            ids = self._live()[:, at.A_ID]
            order = np.argsort(ids, kind="stable")
            place = np.searchsorted(ids[order], acls, "right") - 1
            slots = np.append(order, -1)[place]  # the last one too where there is none below
            known = (acls == OPEN_ACL) | (np.append(ids, OPEN_ACL)[slots] == acls)
            if known.all():
                found: Int64s = np.where(acls == OPEN_ACL, -1, slots)
                return found
            for number in np.unique(acls[~known]).tolist():
                self._new_slot(number, 1, -1)

    # Looking

    def number(self, slot: int) -> int:
        return int(self.slots[slot, at.A_ID]) if slot >= 0 else OPEN_ACL

    def content(self, slot: int) -> bytes | None:
        """The list of a slot, None where the table does not have it."""
        return None if self.slots[slot, at.A_GONE] else self._contents[int(self.slots[slot, at.A_LIST])]

    def missing(self, slots: Int64s) -> set[int]:
        """The numbers of those of these slots that the table does not have."""
        used = np.unique(slots[slots >= 0])
        return set(self.slots[used[self.slots[used, at.A_GONE] == 1], at.A_ID].tolist())

    def uses(self) -> dict[int, int]:
        """How often each number counts as used, by number."""
        live = self._there()
        return dict(zip(live[:, at.A_ID].tolist(), live[:, at.A_REFS].tolist(), strict=True))

    def table(self) -> AclTable:
        """As a snapshot has it, by number."""
        live = self._there()
        lists = [self._contents[one] for one in live[:, at.A_LIST].tolist()]
        data = table_bytes(live[:, at.A_ID].tolist(), lists)
        return AclTable.parse(np.frombuffer(data, np.uint8), 0, len(data))[0]

    def _there(self) -> Int64s:
        live = self._live()
        live = live[live[:, at.A_GONE] == 0]
        ordered: Int64s = live[np.argsort(live[:, at.A_ID], kind="stable")]
        return ordered

    def _live(self) -> Int64s:
        return self.slots[: self._s[at.SLOTS]]

    # Room

    def _new_slot(self, number: int, gone: int, one: int) -> int:
        self._room_for_slot()
        slot = int(self._s[at.SLOTS])
        self._s[at.SLOTS] += 1
        self.slots[slot] = number, 0, gone, one
        self._s[at.ANY_GONE] |= gone
        return slot

    def _room_for_slot(self) -> None:
        """For one that is made here, and for one that a kernel makes."""
        used = int(self._s[at.SLOTS])
        self.slots = at.grown(self.slots, used, used + 2)

    def _rehash(self) -> None:
        made = np.zeros((4 * len(self.forms), at.FORM_FIELDS), np.int64)
        for form in self.forms[self.forms[:, at.P_SIZE] > 0]:
            place = int(form[at.P_HASH]) & len(made) - 1
            while made[place, at.P_SIZE]:
                place = place + 1 & len(made) - 1
            made[place] = form
        self.forms = made


def entries(content: bytes) -> list[dict[str, Any]]:
    """A list as rows have it, in the raw type."""
    found, _ = LIST.unpack(content, 0, len(content), {})
    return [{"perms": one["perms"], **one["id"]} for one in found]


def nameless(content: bytes) -> bool:
    """Whether a list has a null for a name, so that a server can't keep it (`Id.hashCode`)."""
    return any(None in (one["scheme"], one["id"]) for one in entries(content))


def _as_read(content: bytes) -> bytes:
    """The list as a server writes it when it has read it: two that Java can't tell from each other are one."""
    found = [
        {
            "perms": one["perms"],
            "id": {
                name: None if one[name] is None else jute_string(one[name].decode("utf-8", "replace"))
                for name in ("scheme", "id")
            },
        }
        for one in entries(content)
    ]
    return LIST.pack(found, {})
