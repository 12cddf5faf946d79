"""The exceptions of a Java server. Their classes decide the effect of the damage, and their messages are what users search for.

After an `IOException` in a snapshot the server tries the next older one. Anything else ends its start.
"""

from __future__ import annotations


class Thrown(Exception):
    """An exception of the server. `java` is its class; the text is its message, "" without one."""

    java = "java.lang.RuntimeException"

    def __init__(self, message: str = "") -> None:
        super().__init__(message)

    @property
    def message(self) -> str:
        return str(self.args[0])

    def __str__(self) -> str:
        """The exception as in a stack trace."""
        return f"{self.java}: {self.message}" if self.message else self.java


class IOFailure(Thrown):
    java = "java.io.IOException"


class EndOfFile(IOFailure):
    java = "java.io.EOFException"


class ZipFailure(IOFailure):
    java = "java.util.zip.ZipException"


class SnappyFailure(IOFailure):
    java = "org.xerial.snappy.SnappyIOException"


class SnappyError(Thrown):
    """An error rather than an exception: no older snapshot is tried after it."""

    java = "org.xerial.snappy.SnappyError"


class NullPointer(Thrown):
    java = "java.lang.NullPointerException"


class IllegalArgument(Thrown):
    java = "java.lang.IllegalArgumentException"


class NumberFormat(IllegalArgument):
    java = "java.lang.NumberFormatException"


class IllegalState(Thrown):
    java = "java.lang.IllegalStateException"


class OutOfBounds(Thrown):
    java = "java.lang.StringIndexOutOfBoundsException"


class IndexOutOfBounds(Thrown):
    java = "java.lang.ArrayIndexOutOfBoundsException"


class OutOfMemory(Thrown):
    java = "java.lang.OutOfMemoryError"


class DatadirFailure(Thrown):
    """The directories themselves are not as required."""

    java = "org.apache.zookeeper.server.persistence.FileTxnSnapLog$DatadirException"


class LogDirContent(DatadirFailure):
    java = "org.apache.zookeeper.server.persistence.FileTxnSnapLog$LogDirContentCheckException"


class SnapDirContent(DatadirFailure):
    java = "org.apache.zookeeper.server.persistence.FileTxnSnapLog$SnapDirContentCheckException"


_BY_NAME = {
    kind.java.rpartition(".")[2]: kind
    for kind in (Thrown, NullPointer, NumberFormat, IllegalArgument, OutOfBounds, IndexOutOfBounds)
}


def died_of(words: str) -> Thrown:
    """Return the exception that ends a server, as the tree reports it: the class without its package, and the message."""
    name, _, message = words.partition(": ")
    return _BY_NAME.get(name, Thrown)(message)
