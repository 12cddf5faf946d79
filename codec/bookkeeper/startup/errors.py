"""Java exceptions, as a bookie reports them."""

from __future__ import annotations

IO_EXCEPTION = "java.io.IOException"
BOOKIE = "org.apache.bookkeeper.bookie."
LOOKUP = f"{BOOKIE}DefaultEntryLogger$EntryLookupException"
UNDERFLOW = "java.nio.BufferUnderflowException"
OUT_OF_MEMORY = "java.lang.OutOfMemoryError"
ILLEGAL_ARGUMENT = "java.lang.IllegalArgumentException"
_LONGEST_ARRAY = (1 << 31) - 3
DIRECT_MEMORY = (2 << 30) - (64 << 20)
"""The free part of the direct memory of a bookie with `-XX:MaxDirectMemorySize=2g`, as `bkenv.sh` sets it."""


class JavaError(Exception):
    """A Java exception with its cause. `handled`: it is an `IOException` or a `BookieException`, which a bookie handles."""

    def __init__(
        self, name: str, text: str = "", cause: JavaError | None = None, *, handled: bool = True
    ) -> None:
        super().__init__(text)
        self.name, self.text, self.cause, self.handled = name, text, cause, handled

    def chain(self) -> list[str]:
        """Return the exception and its causes, outermost first."""
        own = f"{self.name}: {self.text}" if self.text else self.name
        return [own, *(self.cause.chain() if self.cause else ())]

    @property
    def message(self) -> str:
        """The text, followed by the causes."""
        return ": ".join(part for part in (self.text, *(self.cause.chain() if self.cause else ())) if part)


def io_error(text: str, cause: JavaError | None = None) -> JavaError:
    return JavaError(IO_EXCEPTION, text, cause)


def unchecked(name: str, text: str = "") -> JavaError:
    """Return an exception that no caller handles."""
    return JavaError(name, text, handled=False)


def no_ledger(ledger: int) -> JavaError:
    return JavaError(f"{BOOKIE}Bookie$NoLedgerException", f"Ledger {ledger} not found")


def no_entry(ledger: int, entry: int) -> JavaError:
    return JavaError(f"{BOOKIE}Bookie$NoEntryException", f"Entry {entry} not found in {ledger}")


def allocate(size: int, heap: int) -> None:
    """Raise the error of an array of `size` bytes that a Java heap of `heap` bytes cannot hold, an eighth of which is in use."""
    if size > _LONGEST_ARRAY:
        raise unchecked(OUT_OF_MEMORY, "Requested array size exceeds VM limit")
    if size > heap * 7 // 8:
        raise unchecked(OUT_OF_MEMORY, "Java heap space")
