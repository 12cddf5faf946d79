"""Random damage operations from a seed. Each is drawn for the current files and recorded explicitly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from logwright.codec import plural
from logwright.codec.describe import Flags, Int
from logwright.codec.fault import UsageError
from logwright.corpora.damage_apply import Surgeon
from logwright.corpora.damage_ops import parse
from logwright.corpora.rng import Rng

_TRIES = 100
_WORDS = (
    "flip",
    "flip",
    "flip",
    "zero",
    "write",
    "insert",
    "drop",
    "cut",
    "duplicate",
    "reorder",
    "set",
    "set",
)
"""Operations, repeated according to their weights."""
_OF_FRAMES = ("duplicate", "reorder", "set")
_PRIMARY = 4
"""The weight of a primary file, relative to other files."""


def at_random(surgeon: Surgeon, seed: int, count: int) -> Iterator[dict[str, Any]]:
    """Carry out `count` random operations, and yield each as `Surgeon.run` does. Raises `UsageError` if there is nothing left to
    damage."""
    rng = Rng(seed, "damage")
    for number in range(count):
        for _ in range(_TRIES):
            try:
                drawn = _draw(surgeon, rng)
                done = [] if drawn is None else surgeon.run(parse(drawn))
            except UsageError:
                continue  # the operation does not apply to this file, or not any more
            if done:
                yield from done
                break
        else:
            text = f"nothing is left to damage after {plural.count(number, 'operation')}"
            raise UsageError(text, path=surgeon.tree.shown, advice="Pass a smaller count (--count)")


def _draw(surgeon: Surgeon, rng: Rng) -> Mapping[str, Any] | None:
    name = _file(surgeon, rng)
    if name is None:
        return None
    image = surgeon.tree.images[name]
    word = rng.choice(_WORDS)
    chosen: Mapping[str, Any] = {"op": word, **({"file": name} if name else {})}
    if word in _OF_FRAMES:
        more = _of_frames(surgeon, rng, name, word)
    else:
        more = _of_bytes(rng, image.size, word)
    return None if more is None else {**chosen, **more}


def _file(surgeon: Surgeon, rng: Rng) -> str | None:
    images = surgeon.tree.images
    primary = set(surgeon.primary()) if not surgeon.tree.single else {""}
    names = [
        name
        for name in sorted(images)
        if images[name].size
        for _ in range(_PRIMARY if name in primary else 1)
    ]
    return rng.choice(names) if names else None


def _of_bytes(rng: Rng, size: int, word: str) -> Mapping[str, Any]:
    at = _below(rng, size)
    length = 1 + _below(rng, min(size - at, 64))
    if word == "flip":
        return {"at": at, "bit": rng.below(8)}
    if word in ("zero", "drop"):
        return {"at": at, "length": length}
    if word == "cut":
        return {"at": at}
    return {"at": at, "hex": rng.bytes(length).hex()}


def _of_frames(surgeon: Surgeon, rng: Rng, name: str, word: str) -> Mapping[str, Any] | None:
    frames = surgeon.frames(name, surgeon.tree.images[name])
    if not frames:
        return None
    frame = _below(rng, len(frames))
    if word == "duplicate":
        return {"frame": frame}
    if word == "reorder":
        return {"frames": [frame, frame + 1]} if frame + 1 < len(frames) else None
    codec = surgeon.known(name).codec
    if not codec.structures:
        return None
    fields = [
        field
        for field in codec.structures[0].fields
        if isinstance(field.type, Int | Flags) and not field.checksum
    ]
    chosen = rng.choice(fields)
    kind = chosen.type.base if isinstance(chosen.type, Flags) else chosen.type
    assert isinstance(kind, Int)
    low, high = (-(1 << 8 * kind.width - 1), (1 << 8 * kind.width - 1) - 1)
    if not kind.signed:
        low, high = 0, (1 << 8 * kind.width) - 1
    values: tuple[Callable[[], Mapping[str, Any]], ...] = (
        lambda: {"add": 1},
        lambda: {"add": -1},
        lambda: {"value": 0},
        lambda: {"value": rng.choice((low, high))},
        lambda: {"value": low + rng.word() % (high - low + 1)},
    )
    change = rng.choice(values)()
    return {"frame": frame, "field": chosen.name, **change, **({"reseal": True} if rng.below(2) else {})}


def _below(rng: Rng, bound: int) -> int:
    """Return a number in [0, `bound`), which may exceed the limit of `Rng.below`."""
    return rng.below(bound) if bound <= 1 << 32 else rng.word() % bound
