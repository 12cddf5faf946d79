"""Choose the right content for the `VERSION` files of a bookie whose copies are damaged or differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from logwright.codec.bookkeeper.formats.cookie import NEWEST, PLAIN
from logwright.codec.bookkeeper.startup.cookie import Cookie, directories, journal_paths
from logwright.codec.bookkeeper.startup.errors import JavaError
from logwright.codec.bookkeeper.store.tree import BOOKIE_ID, INSTANCE, VERSION, Place, Tree

_HOST = re.compile(r"[\w.-]+(:\d+)?")
_LARGEST = 1 << 10
"""Bytes of a cookie in which a flipped bit is searched."""
_NAMES = ("host", "journals", "ledgers", "indexes", "instance")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HALF_UUID = re.compile(rb"[0-9a-f-]{18}")


def replacements(tree: Tree) -> tuple[dict[str, bytes], str]:
    """Return new contents of the files that a bookie refuses, and what stays unknown.

    Of each field the value of an option is right, else the most frequent one. Of several that are equally frequent, it is the one that has a
    valid form or agrees with the names of the directories. A single flipped bit in the name of a field or in a mark is corrected.
    """
    texts = {
        f"{place.prefix}{VERSION}": (tree.cookies.get(key) or b"").rstrip(b"\0")
        for key, place in tree.places.items()
    }
    stored = {name: _parsed(text) for name, text in texts.items()}
    complete = (
        cookie if cookie.instance else _corrected(tree, texts[name]) or cookie
        for name, cookie in stored.items()
    )
    valid = [cookie for cookie in complete if cookie.layout]
    instance = tree.options[INSTANCE.name]
    if instance is not None:
        valid = [cookie for cookie in valid if cookie.instance == instance]
    if not valid:
        return (
            {},
            "no VERSION file is valid; get the bookie's cookie from the metadata store: bookkeeper shell cookie_get",
        )
    right = Cookie(NEWEST)
    for name in _NAMES:
        counts = Counter(getattr(cookie, name) for cookie in valid)
        configured = tree.options[BOOKIE_ID.name] if name == "host" else None
        ranks = {
            value: (configured is not None and value == configured, count, _agrees(tree, name, value))
            for value, count in counts.items()
        }
        best, *others = sorted(ranks, key=lambda value: ranks[value], reverse=True)
        if others and ranks[others[0]] == ranks[best]:
            return {}, (
                f"the VERSION files differ ({name}: {best} and {others[0]}), and either may be right; "
                "compare them with: bookkeeper shell cookie_get"
            )
        right = replace(right, **{name: best})
    good = {
        name: tree.cookies[key]
        for key, name in zip(tree.places, stored, strict=True)
        if stored[name] == right and len(tree.cookies[key].rstrip(b"\0")) == tree.sizes[name]
    }
    data = next(iter(good.values()), right.text().encode())
    return dict.fromkeys((name for name in stored if name not in good), data), ""


def _parsed(text: bytes) -> Cookie:
    """Return a cookie in its newest form, one of layout 0 if a bookie refuses the text."""
    try:
        cookie = Cookie.parse(text)
    except JavaError:
        cookie = Cookie(0)
    return replace(cookie, layout=NEWEST) if cookie.layout >= PLAIN else Cookie(0)


def _corrected(tree: Tree, text: bytes) -> Cookie | None:
    """Return the only complete cookie that one flipped bit makes of a text, if there is just one that agrees with the directories."""
    if _HALF_UUID.search(text) is None:
        return None  # no bit adds an instance id
    cookies = {
        _parsed(text[:at] + bytes([text[at] ^ 1 << bit]) + text[at + 1 :])
        for at in range(min(len(text), _LARGEST))
        for bit in range(8)
    }
    right = [
        cookie for cookie in cookies if all(_agrees(tree, name, getattr(cookie, name)) for name in _NAMES)
    ]
    return right[0] if len(right) == 1 else None


def _agrees(tree: Tree, name: str, value: str | None) -> bool:
    """Return whether a field has a valid form, and names the directories that exist."""
    if name == "host":
        return _HOST.fullmatch(value or "") is not None
    if name == "instance":
        return _UUID.fullmatch(value or "") is not None
    if name == "journals":
        return _same(journal_paths(Cookie(NEWEST, journals=value or "")), tree.journals)
    places = tree.ledgers if name == "ledgers" else tree.indexes if tree.has_index_dirs else []
    return _same(directories(value or ""), places)


def _same(paths: Sequence[str], places: Sequence[Place]) -> bool:
    return [path.rstrip("/").rpartition("/")[2] for path in paths] == [place.name for place in places]
