"""The cookie of a bookie (`VERSION`) as a bookie reads and compares it.

Source: `Cookie`, `LegacyCookieValidation` of BookKeeper.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from logwright.codec.bookkeeper.startup.errors import BOOKIE, JavaError, io_error

INVALID = f"{BOOKIE}BookieException$InvalidCookieException"
NEWEST = 5
_PLAIN, _TEXT = 3, 4
_FIELD = re.compile(r'(\w+)\s*:\s*"((?:[^"\\]|\\.)*)"')
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\", "'": "'"}


@dataclass(frozen=True)
class Cookie:
    """The identity of a bookie. Directories are joined as in the file."""

    layout: int
    host: str = ""
    journals: str = ""
    ledgers: str = ""
    instance: str | None = None
    indexes: str | None = None

    @classmethod
    def parse(cls, data: bytes) -> Cookie:
        """Parse the content of VERSION. Raises `JavaError`."""
        lines = data.decode("utf-8", "replace").splitlines() or [""]
        first = lines[0].strip()
        if not re.fullmatch(r"[+-]?[0-9]{1,10}", first) or abs(int(first)) >= 1 << 31:
            raise io_error(f"Invalid string '{first}', cannot parse cookie.")
        layout = int(first)
        if layout == _PLAIN:
            fields = (lines[1:] + [""] * 3)[:3]
            return cls(layout, *fields)
        if layout < _TEXT:
            return cls(layout)
        named = {name: _unescape(value) for name, value in _FIELD.findall("\n".join(lines[1:]))}
        return cls(
            layout, named.get("bookieHost", ""), named.get("journalDir", ""), named.get("ledgerDirs", ""),
            named.get("instanceId") or None, named.get("indexDirs") or None,
        )  # fmt: skip

    def text(self) -> str:
        """Return the content of the file. A bookie always writes the newest layout."""
        if self.layout <= _PLAIN:
            return "\n".join((str(NEWEST), self.host, self.journals, self.ledgers, ""))
        fields: Mapping[str, str | None] = {
            "bookieHost": self.host, "journalDir": self.journals, "ledgerDirs": self.ledgers, "instanceId": self.instance,
            "indexDirs": self.indexes,
        }  # fmt: skip
        lines = [f'{name}: "{_escape(value)}"' for name, value in fields.items() if value is not None]
        return "\n".join((str(NEWEST), *lines, ""))

    def verify(self, other: Cookie) -> None:
        """Compare this cookie, made from the configuration, with a stored one. Raises `JavaError`."""
        if other.layout < _PLAIN:
            raise JavaError(INVALID, f"Cookie is of too old version {other.layout}")
        mine = (self.host, self.journals, self.ledgers, self.indexes or self.ledgers)
        if mine != (other.host, other.journals, other.ledgers, other.indexes or other.ledgers):
            raise JavaError(INVALID, f"Cookie [{self.text()}] is not matching with [{other.text()}]")
        if self.instance != other.instance:
            raise JavaError(
                INVALID,
                f"instanceId {self.instance or 'null'} is not matching with {other.instance or 'null'}",
            )


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t").replace("\n", "\\n")


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text)


def directories(joined: str) -> list[str]:
    """Return the paths in a list that begins with their number."""
    return joined.split("\t")[1:]


def joined(paths: Sequence[str]) -> str:
    """Return ledger or index directories as a cookie lists them."""
    return "\t".join((str(len(paths)), *paths))


def journal_paths(cookie: Cookie) -> list[str]:
    return [path.strip() for path in cookie.journals.split(",") if path.strip()]


def renamed(paths: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the paths with the names that directories have now. Without as many paths, the names."""
    if len(paths) != len(names):
        return list(names)
    bases = [path.rstrip("/").rpartition("/")[2] for path in paths]
    return [
        path.rstrip("/").removesuffix(base) + name
        for path, base, name in zip(paths, bases, names, strict=True)
    ]


def check(
    cookies: Sequence[tuple[str, bytes | None]],
    names: tuple[Sequence[str], Sequence[str], Sequence[str]],
    instance: str | None,
    empty: bool,
) -> None:
    """Check the cookies of all directories, as a bookie whose cookie is also in the metadata store. Raises `JavaError`.

    `cookies` are the contents of VERSION by directory, in the order journals, ledgers, indexes. `names` are the names of the
    configured journal, ledger and index directories. The cookie of the configuration is made from these and from the first valid
    one. `empty`: all directories are.
    """
    known: Cookie | None = None
    for _, data in cookies:
        try:
            stored = Cookie.parse(data or b"")
        except JavaError:
            continue
        if stored.layout >= _PLAIN and (known is None or (known.instance is None and stored.instance)):
            known = stored
    missing = [name for name, data in cookies if data is None]
    master = None if known is None else _master(known, names, instance)
    for _, data in cookies:
        if data is not None:
            try:
                stored = Cookie.parse(data)
            except JavaError as error:
                raise JavaError(INVALID, "", error) from None
            (master or Cookie(NEWEST)).verify(stored)
    if missing and not (empty and len(missing) == len(cookies)):
        raise JavaError(INVALID)


def _master(
    known: Cookie, names: tuple[Sequence[str], Sequence[str], Sequence[str]], instance: str | None
) -> Cookie:
    journals, ledgers, indexes = names
    indexed = known.indexes is not None and bool(indexes)
    return replace(
        known,
        layout=NEWEST,
        journals=",".join(renamed(journal_paths(known), journals)),
        ledgers=joined(renamed(directories(known.ledgers), ledgers)),
        indexes=joined(renamed(directories(known.indexes or ""), indexes)) if indexed else None,
        # The instance id is that of the cluster. A cookie of layout 3 cannot hold it.
        instance=instance or known.instance or ("(that of the cluster)" if known.layout == _PLAIN else None),
    )
