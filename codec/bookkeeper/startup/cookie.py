"""The cookie of a bookie (`VERSION`) as a bookie reads and compares it.

Source: `Cookie`, `LegacyCookieValidation` of BookKeeper.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from logwright.codec.bookkeeper.formats.cookie import FIELDS, NEWEST, PLAIN, REQUIRED
from logwright.codec.bookkeeper.startup import textformat
from logwright.codec.bookkeeper.startup.errors import BOOKIE, JavaError, io_error, unchecked

INVALID = f"{BOOKIE}BookieException$InvalidCookieException"
_TRIMMED = "".join(map(chr, range(33)))


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
        if not data:
            raise JavaError("java.io.EOFException", "Exception in parsing cookie")
        lines = re.split("\r\n|\r|\n", data.decode("utf-8", "replace"))
        first = lines[0].strip(_TRIMMED)
        if not re.fullmatch(r"[+-]?[0-9]{1,10}", first) or abs(int(first)) >= 1 << 31:
            raise io_error(f"Invalid string '{first}', cannot parse cookie.")
        layout = int(first)
        if layout == PLAIN:
            fields = (lines[1:] + [""] * 3)[:3]
            return cls(layout, *fields)
        if layout < PLAIN:
            return cls(layout)
        rest = re.sub("^[^\r\n]*(\r\n|\r|\n)?", "", data.decode("utf-8", "replace"))
        named = dict(textformat.fields(rest.encode(), FIELDS))
        for name in REQUIRED:
            if name not in named:
                raise unchecked("java.lang.IllegalStateException", f"Field '{name}' is not set")
        host, journals, ledgers = (named[name] or "" for name in REQUIRED)
        return cls(
            layout, host, journals, ledgers, named.get("instanceId") or None, named.get("indexDirs") or None
        )

    def text(self) -> str:
        """Return the content of the file. A bookie always writes the newest layout."""
        if self.layout <= PLAIN:
            return "\n".join((str(NEWEST), self.host, self.journals, self.ledgers, ""))
        values = (self.host, self.journals, self.ledgers, self.instance, self.indexes)
        strings = {name: value for name, value in zip(FIELDS, values, strict=True) if value is not None}
        return f"{NEWEST}\n{textformat.form(strings)}"

    def verify(self, other: Cookie) -> None:
        """Compare this cookie, made from the configuration, with a stored one. Raises `JavaError`."""
        if other.layout < PLAIN:
            raise JavaError(INVALID, f"Cookie is of too old version {other.layout}")
        own_identity = (self.host, self.journals, self.ledgers, self.indexes or self.ledgers)
        if own_identity != (other.host, other.journals, other.ledgers, other.indexes or other.ledgers):
            raise JavaError(INVALID, f"Cookie [{self.text()}] is not matching with [{other.text()}]")
        if self.instance != other.instance:
            raise JavaError(
                INVALID,
                f"instanceId {self.instance or 'null'} is not matching with {other.instance or 'null'}",
            )


def directories(joined: str) -> list[str]:
    """Return the paths in a list that begins with their number."""
    return joined.split("\t")[1:]


def joined(paths: Sequence[str]) -> str:
    """Return ledger or index directories as a cookie lists them."""
    return "\t".join((str(len(paths)), *paths))


def journal_paths(cookie: Cookie) -> list[str]:
    return [path.strip() for path in cookie.journals.split(",") if path.strip()]


def renamed(paths: Sequence[str], names: Sequence[str], alike: bool = False) -> list[str]:
    """Return the paths with the current names of the directories, or unchanged if some are `alike`. If the numbers differ, return the
    names."""
    if len(paths) != len(names) or alike:
        return list(paths if len(paths) == len(names) else names)
    bases = [path.rstrip("/").rpartition("/")[2] for path in paths]
    return [
        path.rstrip("/").removesuffix(base) + name
        for path, base, name in zip(paths, bases, names, strict=True)
    ]


@dataclass(frozen=True)
class Identity:
    """The parts of a cookie that are not directories. None stands for the value of the cookies."""

    host: str | None = None
    instance: str | None = None


def check(
    cookies: Sequence[tuple[str, bytes | None]],
    names: tuple[Sequence[str], Sequence[str], Sequence[str]],
    identity: Identity,
    empty: bool,
) -> None:
    """Check the cookies of all directories, as a bookie whose cookie is also in the metadata store. Raises `JavaError`.

    `cookies` are the contents of VERSION by directory, in the order journals, ledgers, indexes. `names` are the names of the
    configured journal, ledger and index directories. The cookie of the configuration is made from these and from the first valid
    one. `empty`: all directories are empty.
    """
    known: Cookie | None = None
    for _, data in cookies:
        try:
            stored = Cookie.parse(data or b"")
        except JavaError:
            continue
        if stored.layout >= PLAIN and (known is None or (known.instance is None and stored.instance)):
            known = stored
    missing = [name for name, data in cookies if data is None]
    master = None if known is None else _master(known, names, identity)
    for _, data in cookies:
        if data is not None:
            try:
                stored = Cookie.parse(data)
            except JavaError as error:
                if not error.handled:
                    raise
                raise JavaError(INVALID, "", error) from None
            (master or Cookie(NEWEST)).verify(stored)
    if missing and not (empty and len(missing) == len(cookies)):
        raise JavaError(INVALID)


def _master(
    known: Cookie, names: tuple[Sequence[str], Sequence[str], Sequence[str]], identity: Identity
) -> Cookie:
    journals, ledgers, indexes = names
    stored = journal_paths(known), directories(known.ledgers), directories(known.indexes or "")
    paths = {path.rstrip("/") for kind in stored for path in kind}
    # Folders of one directory cannot have the names of these directories if two are equal.
    alike = len({path.rpartition("/")[2] for path in paths}) < len(paths)
    indexed = known.indexes is not None and bool(indexes)
    return replace(
        known,
        layout=NEWEST,
        host=identity.host or known.host,
        journals=",".join(renamed(stored[0], journals, alike)),
        ledgers=joined(renamed(stored[1], ledgers, alike)),
        indexes=joined(renamed(stored[2], indexes, alike)) if indexed else None,
        # The instance id is that of the cluster. A cookie of layout 3 does not have one.
        instance=identity.instance
        or known.instance
        or ("(that of the cluster)" if known.layout == PLAIN else None),
    )
