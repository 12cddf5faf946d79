"""The ACL table of a tree in memory: a list gets a number as a server assigns it, and loses it when no node refers to it.

Different bytes may decode to the same list in Java. They are one list, known by its forms. A node refers to a slot, which holds a number
and a list. Source: `ReferenceCountedACLCache` of ZooKeeper.
"""

from __future__ import annotations

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.kernels.crc32 import crc32_raw
from logwright.codec.zookeeper.formats.snapshot.acl import AclTable, packed, packed_text, table_bytes
from logwright.codec.zookeeper.formats.snapshot.layout import OPEN_ACL
from logwright.codec.zookeeper.jute import list_entries, text_entries
from logwright.codec.zookeeper.state import tree_fields as f


class AclCache:
    """Arrays for kernels, and rare operations. `state` is that of the tree."""

    def __init__(self, state: Int64s) -> None:
        self._s = state
        self.slots = np.empty((8, f.ACL_FIELDS), np.int64)
        self.forms = np.zeros((32, f.FORM_FIELDS), np.int64)
        """A hash table."""
        self.lists = np.empty(8, np.int64)
        """The slot of each list, -1 for none."""
        self.data = np.empty(1 << 10, np.uint8)
        """The bytes of forms."""
        self._used = self._formed = 0
        self._contents: list[bytes] = []
        self._by_content: dict[bytes, int] = {}

    def add(self, number: int, content: bytes) -> int:
        """Assign a number to a list; return its slot."""
        number_of_list = self.learn(content)
        slot = self._new_slot(number, 0, number_of_list)
        self.lists[number_of_list] = slot
        self.reserve(number)
        return slot

    def load(self, table: AclTable) -> None:
        """Load the table of a snapshot. Of a number that occurs twice, the last list counts."""
        ordered = packed(table.raw.slice(0, len(table.known_ids))).to_pylist()
        for number, content in zip(table.known_ids.tolist(), ordered, strict=True):
            self.add(number, content)

    def reserve(self, number: int) -> None:
        """Reserve the numbers up to this one: they are not assigned again."""
        self._s[f.ACL_INDEX] = max(int(self._s[f.ACL_INDEX]), number)

    def forget_unused(self) -> None:
        """`purgeUnused`."""
        live = self._live()
        for slot in np.flatnonzero((live[:, f.A_REFS] <= 0) & (live[:, f.A_GONE] == 0)).tolist():
            live[slot, f.A_GONE] = self._s[f.ANY_GONE] = 1
            self.lists[live[slot, f.A_LIST]] = -1

    def learn(self, content: bytes) -> int:
        """Return the list of these bytes, which are a form of it from now on, and make room for a slot."""
        self._room_for_slot()
        crc = int(crc32_raw(f.ONES, np.frombuffer(content, np.uint8), 0, len(content)))
        place = crc & len(self.forms) - 1
        while self.forms[place, f.P_SIZE]:
            form = self.forms[place]
            start, size = int(form[f.P_AT]), int(form[f.P_SIZE])
            if form[f.P_HASH] == crc and self.data[start : start + size].tobytes() == content:
                return int(form[f.P_LIST])
            place = place + 1 & len(self.forms) - 1
        # As a server writes it after reading it: two lists that Java cannot distinguish are one.
        as_read = packed_text(text_entries(list_entries(content)))
        list_number = self._by_content.get(as_read)
        if list_number is None:
            list_number = self._by_content[as_read] = len(self._contents)
            # A count below zero means null.
            self._contents.append(as_read if content[:1] >= b"\x80" else content)
            self.lists = f.grown(self.lists, list_number, list_number + 1)
            self.lists[list_number] = -1
        end = self._used + len(content)
        self.data = f.grown(self.data, self._used, end)
        self.data[self._used : end] = np.frombuffer(content, np.uint8)
        self.forms[place] = self._used, len(content), crc, list_number
        self._used, self._formed = end, self._formed + 1
        if 2 * self._formed > len(self.forms):
            self._rehash()
        return list_number

    def slots_of(self, acls: Int64s) -> Int64s:
        """Return the slots of numbers. A number that the table lacks gets a slot that says so."""
        while True:
            ids = self._live()[:, f.A_ID]
            order = np.argsort(ids, kind="stable")
            place = np.searchsorted(ids[order], acls, "right") - 1
            slots = np.append(order, -1)[place]  # index -1 is the last slot, and is masked below
            known = (acls == OPEN_ACL) | (np.append(ids, OPEN_ACL)[slots] == acls)
            if known.all():
                slots_or_open: Int64s = np.where(acls == OPEN_ACL, -1, slots)
                return slots_or_open
            for number in np.unique(acls[~known]).tolist():
                self._new_slot(number, 1, -1)

    # Reading

    def number(self, slot: int) -> int:
        return int(self.slots[slot, f.A_ID]) if slot >= 0 else OPEN_ACL

    def content(self, slot: int) -> bytes | None:
        """Return the list of a slot, or None if the table lacks it."""
        return None if self.slots[slot, f.A_GONE] else self._contents[int(self.slots[slot, f.A_LIST])]

    def missing(self, slots: Int64s) -> set[int]:
        """Return the numbers of those of these slots that the table lacks."""
        used = np.unique(slots[slots >= 0])
        return set(self.slots[used[self.slots[used, f.A_GONE] == 1], f.A_ID].tolist())

    def table(self) -> AclTable:
        """Return the table as a snapshot has it, by number."""
        live = self._there()
        lists = [self._contents[list_number] for list_number in live[:, f.A_LIST].tolist()]
        data = table_bytes(live[:, f.A_ID].tolist(), lists)
        return AclTable.parse(np.frombuffer(data, np.uint8), 0, len(data))[0]

    def _there(self) -> Int64s:
        live = self._live()
        live = live[live[:, f.A_GONE] == 0]
        ordered: Int64s = live[np.argsort(live[:, f.A_ID], kind="stable")]
        return ordered

    def _live(self) -> Int64s:
        return self.slots[: self._s[f.SLOTS]]

    # Room

    def _new_slot(self, number: int, gone: int, list_number: int) -> int:
        self._room_for_slot()
        slot = int(self._s[f.SLOTS])
        self._s[f.SLOTS] += 1
        self.slots[slot] = number, 0, gone, list_number
        self._s[f.ANY_GONE] |= gone
        return slot

    def _room_for_slot(self) -> None:
        """Make room for a slot made here, and one made by a kernel."""
        used = int(self._s[f.SLOTS])
        self.slots = f.grown(self.slots, used, used + 2)

    def _rehash(self) -> None:
        forms = np.zeros((4 * len(self.forms), f.FORM_FIELDS), np.int64)
        for form in self.forms[self.forms[:, f.P_SIZE] > 0]:
            place = int(form[f.P_HASH]) & len(forms) - 1
            while forms[place, f.P_SIZE]:
                place = place + 1 & len(forms) - 1
            forms[place] = form
        self.forms = forms


def nameless(content: bytes) -> bool:
    """Return whether a list has a null name, which a server cannot store (`Id.hashCode`)."""
    return any(None in (entry["scheme"], entry["id"]) for entry in list_entries(content))
