"""Traits of golden cases: the kinds of answers, damage and content that a case represents, taken from its files.

`tests/conftest.py` uses them to choose the sample of golden cases that `make test` runs.

"""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "corpora/golden"

_ROWS = {"node", "acl_cache", "persisted", "journal_record"}
"""Kinds of JSON lines that hold rows, not answers."""
_SKIPPED = {
    "case", "base", "files", "files_after", "files_removed", "files_after_failed_start", "files_after_start", "old", "new",
    "partition_dirs_after", "sha256", "offset_ranges", "offset", "hex", "how", "description", "key", "keys", "tags", "topic",
    "msg_topic", "uniq_key", "offset_msg_id", "body_hex", "body_plain", "body_plain_hex",
}  # fmt: skip
"""Fields that name or count something of this case only."""
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]*\d[0-9a-f]*\b|\d+")
_SUFFIX = re.compile(r"(?<=\.)[0-9a-f]+(?=\.|$)")
"""A hexadecimal number in a file's name."""
_PATH = re.compile(r"\S*/\S*")
_EXCEPTION = re.compile(r"\b[A-Z]\w+(?:Exception|Error)\b")
_LONG = 1000
"""The part of a text that is looked at: more is a list or a body."""
_PREFIX = 70
"""The prefix that distinguishes messages. The rest quotes the case."""


@functools.cache
def cases(system: str) -> Mapping[str, Path]:
    """Return the folders of a system's golden cases by name, including those of its archive `stores.tar.xz`."""
    folders = {path.name: path for path in GOLDEN.joinpath(system).glob("*/")}
    archive = GOLDEN / system / "stores.tar.xz"
    if archive.exists():
        folders |= {path.name: path for path in unpacked(archive).glob("*/")}
    return folders


@functools.cache
def unpacked(archive: Path) -> Path:
    """Return the folder of an archive's files. They are unpacked once, into `.cache/`, and no test changes them."""
    place = ROOT / ".cache/golden"
    folder = place / hashlib.sha256(archive.read_bytes()).hexdigest()[:16]
    if not folder.exists():
        place.mkdir(parents=True, exist_ok=True)
        with (
            TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as draft,
            tarfile.open(archive) as files,
        ):
            if hasattr(tarfile, "data_filter"):
                files.extraction_filter = tarfile.data_filter  # Python before 3.11.4 has no filters
            files.extractall(draft)
            # Another worker may have been faster.
            with contextlib.suppress(OSError):
                Path(draft).rename(folder)
    return folder


@functools.cache
def traits(folder: Path) -> frozenset[str]:
    """Return the traits of the golden case in `folder`.

    A trait is one masked scalar of the recorded answers (verdict, status, log line, exception class, setting, writer), a kind of
    file, or the magic, compression and flags of a Kafka batch. A case without a recorded verdict has its description as a trait.
    """
    masked_traits: set[str] = set()
    answers = list(_answers(folder))
    texts: set[str] = set()
    for answer in answers:
        _add_scalars(answer, "", texts)
    for text in texts:
        masked_traits |= {f"throws {name}" for name in _EXCEPTION.findall(text)}
        masked_traits.add(_masked(text.replace(folder.name, "CASE"))[:_PREFIX])
    for path in folder.glob("*/**/*"):
        if path.parent.name != "tools" and path.is_file():
            masked_traits.add(f"file {kind_of_file(path)}")
            if path.suffix == ".log" and folder.parent.name == "kafka":
                masked_traits |= _batch_traits(path.read_bytes())
    if not any("runs" in answer or "server" in answer or "open_status" in answer for answer in answers):
        masked_traits |= {
            _masked(str(answer["description"])) for answer in answers if "description" in answer
        }
    return frozenset(masked_traits)


def kind_of_file(path: Path) -> str:
    """Return the name of a file with its numbers masked."""
    return _SUFFIX.sub("#", _NUMBER.sub("#", path.name))


def _masked(text: str) -> str:
    return _NUMBER.sub("#", _PATH.sub("PATH", text))


def _answers(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.json*")):
        text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
        if ".jsonl" not in path.name:
            yield json.loads(text)
        elif path.name.startswith(("truth", "restore")):
            lines = map(json.loads, text.splitlines())
            yield from (
                line for line in lines if line.get("t") or ("kind" in line and line["kind"] not in _ROWS)
            )


def _add_scalars(value: Any, place: str, texts: set[str]) -> None:
    """Add `place=value` of each text and truth value. Numbers count a particular case, so they are no traits."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name not in _SKIPPED:
                _add_scalars(inner, f"{place}.{name}" if place else name, texts)
    elif isinstance(value, list):
        for inner in value:
            # Of a message's properties, the names.
            named = isinstance(inner, list) and place.endswith("properties")
            _add_scalars(inner[0] if named else inner, place, texts)
    elif isinstance(value, bool | str):
        texts.add(f"{place}={value}"[:_LONG])


def _batch_traits(data: bytes) -> set[str]:
    batch_traits, at = set(), 0
    while at + 23 <= len(data):
        length, magic = int.from_bytes(data[at + 8 : at + 12], signed=True), data[at + 16]
        attributes = int.from_bytes(data[at + 21 : at + 23]) if magic == 2 else data[at + 17]
        if magic <= 2:
            batch_traits.add(
                f"batch of magic {magic}, compression {attributes & 7}, flags {attributes >> 3 & 15:04b}"
            )
        if length <= 0:
            break
        at += 12 + length
    return batch_traits
