"""What both kinds of conversion know of a format: its options and its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from logwright.codec import registry
from logwright.codec.option import Verb, fold
from logwright.readers.usage import declarations, takes


def narrows(owner: Any, options: Mapping[str, Any]) -> bool:
    """Return whether one of the options selects rows."""
    names = {fold(option.name) for option, _ in declarations(owner) if option.narrows}
    return any(fold(name) in names for name, value in options.items() if value is not None)


def codec_named(target: Any) -> Any:
    """Return the codec of a single file (`readers.target.FileTarget`)."""
    return target.codec


def of_table(codec: Any, table: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the read options of a file's rows that another table of the file accepts too."""
    return {
        name: value
        for name, value in options.items()
        if takes(codec, name, Verb.READ, table) or not takes(codec, name, Verb.READ, "rows")
    }


def is_layout(codec: str | None) -> bool:
    return codec is not None and any(layout.name == codec for layout in registry.writers())
