"""The exceptions of a broker that its own code handles in different ways, with its words for them."""

from __future__ import annotations


class BrokerError(Exception):
    """An exception that ends the start of the broker, unless a rule catches it. `java` is its class."""

    java = "java.lang.RuntimeException"
    scope = "process"

    def __init__(self, message: str, java: str | None = None) -> None:
        super().__init__(message)
        self.java = java or type(self).java

    @property
    def message(self) -> str:
        return str(self)


class CorruptRecord(BrokerError):
    """`CorruptRecordException` and `InvalidRecordException`: where a segment is recovered, it is cut there."""

    java = "org.apache.kafka.common.errors.CorruptRecordException"


class InvalidOffset(BrokerError):
    """`InvalidOffsetException`: where the log is recovered, the segment is emptied."""

    java = "org.apache.kafka.common.errors.InvalidOffsetException"


class OffsetOverflow(BrokerError):
    """`LogSegmentOffsetOverflowException`: the segment is split, where that is possible."""

    java = "org.apache.kafka.storage.internals.log.LogSegmentOffsetOverflowException"

    def __init__(self, message: str, base_offset: int) -> None:
        super().__init__(message)
        self.base_offset = base_offset


class CorruptIndex(BrokerError):
    """`CorruptIndexException`: the segment is recovered."""

    java = "org.apache.kafka.storage.internals.log.CorruptIndexException"


class Offline(BrokerError):
    """An `IOException` of the disk or of a text file: the log directory goes offline, the broker goes on with its others."""

    java = "java.io.IOException"
    scope = "log_dir"


class Stray(BrokerError):
    """The partition is set aside under another name; nobody is served from it."""

    java = ""
    scope = "partition"
