"""The golden files: files that real systems wrote, and how these systems read them, case by case.

They are in `corpora/golden/<system>/<case>/` of the repository (see the README there) and not part of an installed package.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from logwright.codec.fault import NotFoundError

_HOME = Path(__file__).resolve().parent / "golden"
"""Resolved, because the package is a symbolic link."""


@dataclass(frozen=True)
class Case:
    """One folder of golden files."""

    name: str
    path: Path

    @cached_property
    def about(self) -> Mapping[str, Any]:
        """case.json: kind, description, writer, settings; for damaged cases `base` and `changed`."""
        content: Mapping[str, Any] = json.loads(self._text("case.json") or "{}")
        return content

    @property
    def kind(self) -> str:
        return str(self.about["kind"])

    @property
    def base(self) -> str | None:
        """The undamaged case that a damaged case was made from."""
        return self.about.get("base")

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def partitions(self) -> list[Path]:
        """The directories of partitions, without those set aside."""
        return sorted(
            path for path in self.data.iterdir() if path.is_dir() and "." not in path.name.rpartition("-")[2]
        )

    @property
    def partition(self) -> Path:
        """The partition directory of a case that has one."""
        (directory,) = self.partitions
        return directory

    @cached_property
    def runs(self) -> Mapping[str, Any]:
        """recovery.json: the outcome of each run of a broker on the case, if any."""
        return dict(json.loads(self._text("recovery.json") or '{"runs": {}}')["runs"])

    def records(self, *, committed: bool = False) -> list[dict[str, Any]] | None:
        """Return the records that a consumer got, if they are stored."""
        text = self._text("records-committed.jsonl") if committed else None
        if text is None:
            text = self._text("records.jsonl")
        return None if text is None else [json.loads(line) for line in text.splitlines()]

    def files(self) -> Iterator[Path]:
        """All files under `data`, in order."""
        return iter(sorted(path for path in self.data.rglob("*") if path.is_file()))

    def _text(self, name: str) -> str | None:
        plain, packed = self.path / name, self.path / f"{name}.gz"
        if plain.exists():
            return plain.read_text(encoding="utf-8")
        if packed.exists():
            return gzip.decompress(packed.read_bytes()).decode("utf-8")
        return None


def cases(system: str) -> dict[str, Case]:
    """Return all golden cases of a system by name. Raises `NotFoundError` if the cases are missing, as in an installed package."""
    home = _HOME / system
    if not home.is_dir():
        raise NotFoundError(
            f"no golden files of {system}",
            path=str(home),
            advice="They are in the repository, not in the installed package",
        )
    return {path.name: Case(path.name, path) for path in sorted(home.iterdir()) if path.is_dir()}
