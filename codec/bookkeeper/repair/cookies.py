"""Choose the right content for the `VERSION` files of a bookie whose copies are damaged or differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from logwright.codec.bookkeeper.formats.cookie import NEWEST
from logwright.codec.bookkeeper.startup.cookie import Cookie, directories, journal_paths
from logwright.codec.bookkeeper.startup.errors import JavaError
from logwright.codec.bookkeeper.store.tree import BOOKIE_ID, INSTANCE, VERSION, Place, Tree

_HOST = re.compile(r"[\w.-]+(:\d+)?")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def replacements(tree: Tree) -> tuple[dict[str, bytes], str]:
    """Return new contents of the files that a bookie refuses, and what stays unknown.

    Of each field the value of an option is right, else the most frequent one. Of several that are equally frequent, it is the one that has a
    valid form or agrees with the names of the directories.
    """
    stored: dict[str, Cookie] = {}
    for key, place in tree.places.items():
        try:
            cookie = Cookie.parse((tree.cookies.get(key) or b"").rstrip(b"\0"))
        except JavaError:
            cookie = Cookie(0)
        stored[f"{place.prefix}{VERSION}"] = (
            replace(cookie, layout=NEWEST) if cookie.layout >= 3 else Cookie(0)
        )
    valid = [cookie for cookie in stored.values() if cookie.layout]
    instance = tree.options[INSTANCE.name]
    if instance is not None:
        valid = [cookie for cookie in valid if cookie.instance == instance]
    if not valid:
        return (
            {},
            "no VERSION file is valid; get the bookie's cookie from the metadata store: bookkeeper shell cookie_get",
        )
    right = Cookie(NEWEST)
    for name in ("host", "journals", "ledgers", "indexes", "instance"):
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


def _agrees(tree: Tree, name: str, value: str | None) -> bool:
    """Return whether a field has a valid form, and names the directories that exist."""
    if name == "host":
        return _HOST.fullmatch(value or "") is not None
    if name == "instance":
        return value is None or _UUID.fullmatch(value) is not None
    if name == "journals":
        return _same(journal_paths(Cookie(NEWEST, journals=value or "")), tree.journals)
    places = tree.ledgers if name == "ledgers" else tree.indexes if tree.has_index_dirs else []
    return _same(directories(value or ""), places)


def _same(paths: Sequence[str], places: Sequence[Place]) -> bool:
    return [path.rstrip("/").rpartition("/")[2] for path in paths] == [place.name for place in places]
