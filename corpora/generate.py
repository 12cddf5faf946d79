"""`generate`: make files of a format by recipe and seed, together with the rows that must be read from them.

The same recipe, seed, options and version give the same bytes on every machine, except for compressed payloads, whose bytes
depend on the compressor. The following files are written beside the target `x`:

x.expected.jsonl               the rows that must be read, in the form of `logwright dump --format jsonl`
x.expected-read_committed.jsonl    the same for another view, if it differs
x.manifest.json                recipe, seed, options, version; each file with its size and SHA-256; the number of rows by view
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from logwright.codec import registry
from logwright.codec.fault import ExistsError, StorageError, UsageError, did_you_mean
from logwright.codec.layout import Layout
from logwright.codec.option import Options, parse_int
from logwright.codec.plural import count
from logwright.corpora.expected import lines
from logwright.corpora.recipe import Generator, Made, Order, Recipe
from logwright.readers.paths import text_of
from logwright.readers.source import local_path
from logwright.writers.commit import Transaction
from logwright.writers.file import put_whole
from logwright.writers.filesystem import FileSystem, LocalFileSystem, plain_errors, remove_tree
from logwright.writers.target import refuse_remote
from logwright.writers.write import is_layout, write

MANIFEST, EXPECTED = ".manifest.json", ".expected"
_PIECE = 4 << 20


@dataclass(frozen=True)
class Generated:
    """The generated target and the files beside it. `manifest` is the content of the manifest."""

    path: str
    manifest_path: str
    expected: Mapping[str, str]
    """The file with the expected rows of each view."""
    rows: int
    bytes: int
    manifest: Mapping[str, Any] = field(repr=False)

    def __str__(self) -> str:
        files = count(len(self.manifest["files"]), "file")
        beside = sorted({self.manifest_path, *self.expected.values()})
        return (
            f"{self.path}: {count(self.rows, 'row')}, {files}, {count(self.bytes, 'byte')}\n"
            f"also written: {', '.join(map(os.path.basename, beside))}"
        )


def generators() -> list[Generator]:
    """Return the generators of all systems, from `logwright.corpora.<system>.recipes`."""
    return [
        generator
        for module in registry.modules(str(__package__), "recipes")
        for generator in module.generators()
    ]


def recipes(codec: str) -> Sequence[Recipe]:
    """Return the recipes of a codec or layout, the default one first. Raises `UsageError` for a format without recipes."""
    registry.find(codec)  # raises, with the nearest name
    for generator in generators():
        if generator.name == codec:
            return generator.recipes
    there = ", ".join(generator.name for generator in generators())
    raise UsageError(f"no recipes for {codec}", advice=f"There are recipes for: {there}")


def _recipe(codec: str, name: str | None) -> Recipe:
    known = recipes(codec)
    if name is None:
        return known[0]
    for recipe in known:
        if recipe.name == name:
            return recipe
    hint = did_you_mean(name, (recipe.name for recipe in known))
    raise UsageError(f"no recipe {name!r} for {codec}", advice=hint)


def generate(
    codec: str,
    path: str | os.PathLike[str],
    *,
    rows: int | str = 1000,
    seed: int | str = 0,
    recipe: str | None = None,
    files: FileSystem | None = None,
    **options: Any,
) -> Generated:
    """Generate a new file or directory with `rows` rows by a recipe, and the expected rows beside it.

    Raises `ExistsError` if any of the files exists. After an error all files made are removed.
    """
    path = text_of(path)
    refuse_remote(path)
    target = local_path(path)
    chosen = _recipe(codec, recipe)
    count, start = _number("rows", rows, low=0), _number("seed", seed)
    folder, name = os.path.split(os.path.abspath(target))
    order = Order(name, os.path.basename(folder), chosen.name, count, start, Options(chosen.options, options))
    files = LocalFileSystem() if files is None else files
    done: list[str] = []
    with plain_errors(path):
        _refuse_existing(files, path, target.rstrip("/"))
        output = chosen.make(order)
        try:
            return _make(files, codec, target.rstrip("/"), order, output, done)
        except BaseException:
            for item in reversed(done):
                _remove(files, item)
            raise


def _number(name: str, value: int | str, low: int | None = None) -> int:
    try:
        number = parse_int(value)
    except ValueError as error:
        raise UsageError(f"{name} {value!r}: {error}") from None
    if low is not None and number < low:
        raise UsageError(f"{name} {number} is less than {low}")
    return number


def _refuse_existing(files: FileSystem, path: str, target: str) -> None:
    above, name = os.path.split(target)
    if files.stat(target) is not None:
        raise ExistsError("it already exists", path=path, advice="Choose a new file or directory")
    if files.stat(above or ".") is None:
        return
    for item in files.listdir(above or "."):
        if item.name == name + MANIFEST or item.name.startswith(name + EXPECTED):
            beside = os.path.join(above, item.name)
            raise ExistsError(
                "it already exists and would be overwritten",
                path=beside,
                advice="Remove it, or choose another target",
            )


def _make(
    files: FileSystem, codec: str, target: str, order: Order, output: Made, done: list[str]
) -> Generated:
    target_codec = registry.find(codec)
    done.append(target)
    if output.batches is not None:
        write(output.batches(), target, target_codec, files=files, **output.options)
    elif is_layout(target_codec):
        _put_directory(files, target_codec, target, output.files or {})
    else:
        data = (output.files or {})[""]
        put_whole(files, target, "error", lambda: [data])
    entries = list(_entries(files, target, output))
    counts, expected = _put_expected(files, target, output, done)
    manifest = {
        "manifest": 1,
        "codec": codec,
        "recipe": order.recipe,
        "seed": order.seed,
        "rows": order.rows,
        "options": {
            name: value for name, value in order.options.to_dict().items() if order.options.given(name)
        },
        "read_options": dict(output.read_options),
        "logwright": metadata.version("logwright"),
        "files": entries,
        "views": {
            view: {"rows": counts[view], "expected": os.path.basename(expected[view])} for view in counts
        },
    }
    text = json.dumps(manifest, indent=2) + "\n"
    put_whole(files, target + MANIFEST, "error", lambda: [text.encode()])
    size = sum(entry["size"] for entry in entries)
    return Generated(target, target + MANIFEST, expected, order.rows, size, manifest)


def _put_directory(files: FileSystem, layout: Layout, target: str, contents: Mapping[str, bytes]) -> None:
    transaction = Transaction.begin(files, layout, target, "error")
    try:
        for name in layout.order(contents):
            transaction.stage.append(name, contents[name])
        transaction.commit()
    except BaseException:
        transaction.fail()
        raise


def _put_expected(
    files: FileSystem, target: str, output: Made, done: list[str]
) -> tuple[dict[str, int], dict[str, str]]:
    """Write the rows of each view, once for views with the same rows. Returns numbers of rows, and paths."""
    counts: dict[str, int] = {}
    paths: dict[str, str] = {}
    digests: dict[str, str] = {}
    for view, rows in output.expected.items():
        path = f"{target}{EXPECTED}{'-' + view if paths else ''}.jsonl"
        same = next((name for name in paths if output.expected[name] is rows), None)
        if same is not None:
            counts[view], paths[view] = counts[same], paths[same]
            continue
        digest = hashlib.sha256()
        counts[view] = 0

        def chunks(view: str = view, digest: Any = digest) -> Iterator[bytes]:
            for batch in output.expected[view]():
                counts[view] += batch.num_rows
                data = lines(batch)
                digest.update(data)
                yield data

        done.append(path)
        put_whole(files, path, "error", chunks)
        paths[view], digests[view] = path, digest.hexdigest()
        same = next((item for item in digests if item != view and digests[item] == digests[view]), None)
        if same is not None:
            files.remove(path)
            done.remove(path)
            paths[view] = paths[same]
    return counts, paths


def _entries(files: FileSystem, target: str, output: Made) -> Iterator[dict[str, Any]]:
    """Yield each file with its size and hash, and the hash of its content if its bytes depend on a compressor."""
    status = files.stat(target)
    assert status is not None
    for name in sorted(_within(files, target)) if status.directory else [""]:
        path = os.path.join(target, name) if name else target
        size, digest, at = files.stat(path).size, hashlib.sha256(), 0  # type: ignore[union-attr]
        while at < size:
            piece = files.read(path, at, _PIECE)
            if not piece:
                raise StorageError("the file was truncated while it was read", path=path)
            digest.update(piece)
            at += len(piece)
        entry = {"name": name or os.path.basename(target), "size": size, "sha256": digest.hexdigest()}
        content = output.content(name, functools.partial(files.read, path), size)
        yield entry if content is None else {**entry, "content_sha256": content}


def _within(files: FileSystem, folder: str) -> Iterator[str]:
    """Yield the relative paths of all files below a folder."""
    for item in files.listdir(folder):
        if not item.directory:
            yield item.name
        else:
            yield from (f"{item.name}/{name}" for name in _within(files, os.path.join(folder, item.name)))


def _remove(files: FileSystem, path: str) -> None:
    status = files.stat(path)
    if status is None:
        return
    if status.directory:
        remove_tree(files, path)
    else:
        files.remove(path)
