"""Check that a codec has what the laws and the trust harness need, such as samples and strategies."""

from __future__ import annotations

from logwright.codec.base import Codec
from logwright.roundtrip import reference, specimens, strategies

_COLUMNS = {
    "frames": {"position", "size"},
    "file": {"size", "frames", "trailing", "trailing_zeros"},
}
"""The columns that the tables of every codec have."""


def lacks(codec: Codec) -> list[str]:
    """Return one message for each missing part."""
    home = f"roundtrip/{codec.name.partition('.')[0]}"
    messages = []
    for kind, columns in _COLUMNS.items():
        known = codec.tables[kind].names(detail=True) if kind in codec.tables else ()
        messages += [
            f"{codec.name}: the table {kind!r} has no column {column!r}: see codec.table"
            for column in sorted(columns.difference(known))
        ]
    if not any(sample.codec == codec.name for sample in specimens.SAMPLES):
        messages.append(f"{codec.name} has no sample: add one to SAMPLES in {home}/specimens.py")
    if codec.name not in strategies.ROWS:
        messages.append(f"{codec.name} has no strategy for rows: add one to ROWS in {home}/strategies.py")
    if codec.structures:
        if codec.name not in strategies.FILES:
            messages.append(
                f"{codec.name} has no strategy for files: add one to FILES in {home}/strategies.py"
            )
        if reference.rows_of(codec) is None and not codec.single_frame:
            messages.append(
                f"{codec.name} has no reference for its rows: add one to ROWS in {home}/reference.py"
            )
    return messages
