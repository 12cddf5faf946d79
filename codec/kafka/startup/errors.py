"""The exceptions of a broker that its code handles in different ways."""

from __future__ import annotations

from logwright.codec.kafka.formats.checkpoint import FILE
from logwright.codec.single_frame import ParseError


class BrokerError(Exception):
    """An exception that ends the start of the broker unless its code catches it. `java` is the Java class."""

    java = "java.lang.RuntimeException"
    scope = "process"

    def __init__(self, message: str, java: str | None = None) -> None:
        super().__init__(message)
        self.java = java or type(self).java

    @property
    def message(self) -> str:
        return str(self)


class CorruptRecord(BrokerError):
    """`CorruptRecordException` and `InvalidRecordException`: recovery truncates the segment there."""

    java = "org.apache.kafka.common.errors.CorruptRecordException"


class InvalidOffset(BrokerError):
    """`InvalidOffsetException`: recovery of the log empties the segment."""

    java = "org.apache.kafka.common.errors.InvalidOffsetException"


class OffsetOverflow(BrokerError):
    """`LogSegmentOffsetOverflowException`: the segment is split, if that is possible."""

    java = "org.apache.kafka.storage.internals.log.LogSegmentOffsetOverflowException"

    def __init__(self, message: str, base_offset: int) -> None:
        super().__init__(message)
        self.base_offset = base_offset


class CorruptIndex(BrokerError):
    """`CorruptIndexException`: the segment is recovered."""

    java = "org.apache.kafka.storage.internals.log.CorruptIndexException"


class Offline(BrokerError):
    """An `IOException` of the disk or of a text file: the log directory goes offline, and the broker continues with its others."""

    java = "java.io.IOException"
    scope = "log_dir"


class Stray(BrokerError):
    """The directory of the partition is renamed to a stray one, and not served."""

    java = ""
    scope = "partition"


class NotLed(BrokerError):
    """The broker starts, but fails to become the leader of the partition and of those that come after it in the same update of the metadata:
    nobody serves them."""

    scope = "partition"


def text_error(path: str, error: ParseError) -> BrokerError:
    """Return the exception of a broker at a text file."""
    java, text = error.upstream.replace(FILE, path).split(": ", 1)
    return BrokerError(text, java) if error.system else Offline(text, java)
