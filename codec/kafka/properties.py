"""A broker's configuration file (`server.properties`), as far as it says where the logs lie and how they are written.

The form is that of `java.util.Properties.load(InputStream)`; names and defaults are those of `ServerLogConfigs` and
`KRaftConfigs`. No other value is kept: some of them are passwords.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from logwright.codec.fault import UsageError
from logwright.codec.kafka.names import META_PROPERTIES_FILE
from logwright.codec.layout import Configuration

DEFAULT_DIRECTORY = "/tmp/kafka-logs"
"""Of `log.dir`."""
OPTIONS: Mapping[str, str] = {
    "log.segment.bytes": "segment.bytes",
    "log.index.size.max.bytes": "segment.index.bytes",
    "log.index.interval.bytes": "index.interval.bytes",
    "message.max.bytes": "max.message.bytes",
    "producer.id.expiration.ms": "producer.id.expiration.ms",
}
"""A topic's own names of what a broker's configuration sets for all topics that don't."""
_OURS = ("log.dirs", "log.dir", "broker.id", "node.id", "process.roles")
"""With none of these it is the configuration of something else."""
_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE = re.compile(r"[0-9a-fA-F]{4}")


class BrokerConfiguration:
    """See `logwright.codec.layout.Configures`."""

    of = "kafka.partition"

    def named(self, name: str) -> bool:
        # What stands in a log directory under a like name is no configuration.
        return name.endswith(".properties") and name != META_PROPERTIES_FILE

    def understand(self, data: bytes) -> Configuration | None:
        found = dict(properties(data.decode("latin-1")))
        if not any(name in found for name in _OURS):
            return None
        return Configuration(
            "kafka",
            tuple(_directories(found)),
            {topics: found[name] for name, topics in OPTIONS.items() if found.get(name)},
        )


def _directories(found: Mapping[str, str]) -> Iterator[str]:
    """`log.dirs`, else `log.dir`; and where the metadata log is elsewhere, that. Raises `UsageError` for what can't be followed."""
    said = found.get("log.dirs") or found.get("log.dir") or DEFAULT_DIRECTORY
    names = [name.strip() for name in said.split(",")]
    for name in dict.fromkeys([*names, (found.get("metadata.log.dir") or "").strip()]):
        if not name:
            continue
        if "${" in name:
            raise UsageError(
                f"log.dirs holds {name!r}, which a configuration provider of the broker's replaces",
                advice="Name the log directory itself",
            )
        if not name.startswith("/"):
            raise UsageError(
                f"log.dirs holds {name!r}, which is relative to where the broker was started",
                advice="Name the log directory itself",
            )
        yield name


def properties(text: str) -> Iterator[tuple[str, str]]:
    """Names and values, in order; of several of one name the last one counts."""
    lines = iter(re.split(r"\r\n|\r|\n", text))
    for line in lines:
        line = line.lstrip(_BLANK)
        if not line or line[0] in "#!":
            continue
        while _goes_on(line):
            line = line[:-1] + next(lines, "").lstrip(_BLANK)
        end = _end_of_name(line)
        value = line[end:].lstrip(_BLANK)
        if value[:1] in ("=", ":"):
            value = value[1:].lstrip(_BLANK)
        yield _plain(line[:end]), _plain(value)


def _goes_on(line: str) -> bool:
    """Whether it ends in an odd number of backslashes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _end_of_name(line: str) -> int:
    escaped = False
    for i, letter in enumerate(line):
        if not escaped and letter in "=: \t\f":
            return i
        escaped = letter == "\\" and not escaped
    return len(line)


def _plain(text: str) -> str:
    """Without escapes."""
    out, i = [], 0
    while i < len(text):
        letter = text[i]
        i += 1
        if letter == "\\":
            letter = text[i : i + 1]
            i += 1
            number = _UNICODE.match(text, i) if letter == "u" else None
            if number is not None:
                letter, i = chr(int(number[0], 16)), i + 4
            else:
                letter = _ESCAPES.get(letter, letter)
        out.append(letter)
    return "".join(out)


CONFIGURATION = BrokerConfiguration()
