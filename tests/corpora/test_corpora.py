"""Corpora: generated files read as their manifest says, cover the format, and are the same on every platform."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import logwright as lw
from logwright.cli import main
from logwright.codec.kafka.formats.log.layout import ATTRIBUTES
from logwright.corpora import cases
from logwright.corpora import generate as module
from logwright.corpora.expected import lines
from logwright.corpora.generate import generators, recipes
from logwright.corpora.kafka import recipes as kafka_recipes
from logwright.corpora.kafka import script
from logwright.corpora.rng import Rng, text
from logwright.roundtrip.laws import decode_encode, kernel_equals_description

KAFKA = [generator for generator in generators() if generator.name.startswith("kafka.")]
RECIPES = [(item.name, recipe.name) for item in KAFKA for recipe in item.recipes]
SMALL = [recipe for codec, recipe in RECIPES if codec == "kafka.partition" and recipe != "plain"]


def target(codec: str, folder: Path) -> Path:
    return folder / ("orders-3" if codec == "kafka.partition" else "00000000000000000000.log")


def objects(data: bytes) -> list[Any]:
    return [json.loads(line) for line in data.splitlines()]


# Rows equal the manifest's


@pytest.mark.alike
@pytest.mark.parametrize("rows", [0, 1, 150])
@pytest.mark.parametrize(("codec", "recipe"), RECIPES)
def test_generated_corpora_read_as_expected(codec: str, recipe: str, rows: int, tmp_path: Path) -> None:
    rows = min(rows, 7) if recipe == "big" else rows
    path = target(codec, tmp_path)
    generated = lw.generate(codec, path, rows=rows, seed=11, recipe=recipe)
    for view, expected in generated.expected.items():
        options = generated.manifest["read_options"]
        actual = lw.read(path, codec, view=view, columns="*", **options)
        actual = actual.filter(pa.compute.invert(actual["is_control"])).select(
            lw.read(path, codec, limit=0).schema.names
        )
        message = objects(Path(expected).read_bytes())
        assert [item for batch in actual.to_batches() for item in objects(lines(batch))] == message
        assert generated.manifest["views"][view] == {"rows": len(message), "expected": Path(expected).name}
    if generated.manifest["read_options"] == {}:
        assert generated.manifest["views"][next(iter(generated.expected))]["rows"] == rows
    report = lw.verify(path, codec)
    assert report.ok, report.text()


@pytest.mark.alike
@pytest.mark.parametrize("recipe", SMALL)
def test_laws_hold_on_generated_corpora(recipe: str, tmp_path: Path) -> None:
    path = target("kafka.partition", tmp_path)
    lw.generate("kafka.partition", path, rows=60 if recipe != "big" else 4, seed=2, recipe=recipe)
    for file in sorted(path.iterdir()):
        for law in (decode_encode, kernel_equals_description):
            verdict = law(file)
            assert verdict, verdict


def test_manifest_lists_every_file(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    generated = lw.generate(
        "kafka.partition", path, rows="1k", seed="0x7", recipe="segments", segment_bytes="4k"
    )
    manifest = json.loads((tmp_path / "orders-0.manifest.json").read_text())
    assert manifest == generated.manifest
    assert {name: manifest[name] for name in ("codec", "recipe", "seed", "rows", "options", "logwright")} == {
        "codec": "kafka.partition", "recipe": "segments", "seed": 7, "rows": 1024, "options": {"segment.bytes": 4096},
        "logwright": lw.__version__,
    }  # fmt: skip
    assert {row["name"]: row["size"] for row in manifest["files"]} == {
        file.name: file.stat().st_size for file in path.iterdir()
    }
    assert max(row["size"] for row in manifest["files"] if row["name"].endswith(".log")) <= 4096
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "orders-0", "orders-0.expected.jsonl", "orders-0.manifest.json",
    ]  # fmt: skip


def test_each_view_has_its_expected_file(tmp_path: Path) -> None:
    generated = lw.generate("kafka.partition", tmp_path / "orders-0", rows=100, recipe="transactions")
    assert {view: Path(path).name for view, path in generated.expected.items()} == {
        "read_uncommitted": "orders-0.expected.jsonl",
        "read_committed": "orders-0.expected-read_committed.jsonl",
    }
    every, committed = (objects(Path(path).read_bytes()) for path in generated.expected.values())
    assert 0 < len(committed) < len(every) == 100


def test_expected_lines_equal_dump_output(tmp_path: Path, capfdbinary: Any) -> None:
    generated = lw.generate("kafka.partition", tmp_path / "orders-0", rows=50, recipe="nulls")
    with pytest.raises(SystemExit) as ended:
        main(["dump", "--format", "jsonl", str(tmp_path / "orders-0")])
    assert ended.value.code == 0
    assert capfdbinary.readouterr().out == Path(generated.expected["read_uncommitted"]).read_bytes()


# Every attribute of the format


@pytest.fixture(scope="module")
def frames(tmp_path_factory: Any) -> dict[str, Any]:
    """The frames table of each small recipe."""
    out = {}
    for recipe in SMALL:
        path = tmp_path_factory.mktemp(recipe) / "orders-0"
        lw.generate("kafka.partition", path, rows=400 if recipe != "big" else 8, seed=5, recipe=recipe)
        out[recipe] = lw.read(path, view="frames", columns="*").to_pylist()
    return out


def test_every_batch_attribute_occurs(frames: dict[str, Any]) -> None:
    every = [frame for recipe in frames.values() for frame in recipe]
    for bit in ATTRIBUTES.bits:
        values = {bit.of(frame["attributes"]) for frame in every}
        assert values == set(bit.values or (0, 1)), bit.name
    assert any(frame["attributes"] & 0xFF80 for frame in every)
    assert any(frame["attributes"] < 0 for frame in every)
    assert any(frame["records_count"] == 0 and frame["last_offset_delta"] > 0 for frame in every)
    assert any(0 < frame["records_count"] < frame["last_offset_delta"] + 1 for frame in every)
    assert any(frame["producer_id"] == -1 and frame["base_sequence"] == 0 for frame in every)
    assert any(frame["payload"] is not None and frame["compression"] == "none" for frame in every)
    assert {frame["partition_leader_epoch"] for frame in frames["epochs"]} >= {-1}
    assert len({frame["partition_leader_epoch"] for frame in frames["epochs"]}) > 3


@pytest.mark.parametrize(
    ("recipe", "there"),
    [
        ("compressed", lambda all_: {row["compression"] for row in all_} == {"none", "gzip", "snappy", "lz4", "zstd"}),
        ("idempotent", lambda all_: any(row["base_sequence"] + row["last_offset_delta"] > (1 << 31) - 1 for row in all_)),
        ("single", lambda all_: {row["records_count"] for row in all_} == {1}),
        ("segments", lambda all_: sum(row["position"] == 0 for row in all_) > 10),
        ("shifted", lambda all_: all_[0]["base_offset"] == 5_000_000_000),
        ("big", lambda all_: max(len(row["payload"] or b"") for row in all_) < 900_000 < max(row["size"] for row in all_) + 830_000),
        ("timestamps", lambda all_: any(row["max_timestamp"] == -1 for row in all_)),
        ("compacted", lambda all_: any(row["is_control"] and row["delete_horizon_ms"] for row in all_)),
        ("append_time", lambda all_: {row["timestamp_type"] for row in all_} == {1}),
        ("control", lambda all_: any(row["is_control"] and row["producer_id"] == -1 for row in all_)),
    ],
)  # fmt: skip
def test_every_recipe_has_its_feature(recipe: str, there: Any, frames: dict[str, Any]) -> None:
    assert there(frames[recipe])


def test_control_records_of_every_kind_occur(tmp_path: Path) -> None:
    lw.generate("kafka.partition", tmp_path / "orders-0", rows=300, recipe="control", seed=1)
    rows = lw.read(tmp_path / "orders-0", view="log", columns="control_type,is_control")
    kinds = {row["control_type"] for row in rows.to_pylist() if row["is_control"]}
    assert {"ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER"} < kinds


# The same everywhere

PINNED = {
    ("headers", 7): "7251f2f2c268f809d22942c23db7181f0c2f4adddb426e15e0dd39a12155a009",
    ("odd", 0): "d91a5e73a5e5ab4aed6d527d6e2588aadcb7828d180d86701d878b69e5445fde",
    ("transactions", 1): "564d55005738101d2c63e18f5b229f9e062d9c0f7bb1d12f42026a9a9deaeb6c",
    ("plain", 3): "331d8d3242e4b59e6b45934c6fea3789edec8336bddd669eea451c312f054703",
}
"""SHA-256 over the files of 200 rows: names, sizes and hashes."""


def digest(result: Any) -> str:
    import hashlib

    text_ = "\n".join(
        f"{item['name']} {item.get('content_sha256', item['sha256'])}" for item in result.manifest["files"]
    )
    return hashlib.sha256(text_.encode()).hexdigest()


@pytest.mark.parametrize(("recipe", "seed"), PINNED)
def test_generated_bytes_are_stable(recipe: str, seed: int, tmp_path: Path) -> None:
    generated = lw.generate("kafka.partition", tmp_path / "orders-0", rows=200, seed=seed, recipe=recipe)
    assert digest(generated) == PINNED[recipe, seed]


@pytest.mark.parametrize("recipe", ["everything", "plain"])
def test_same_seed_gives_the_same_bytes(recipe: str, tmp_path: Path) -> None:
    result = []
    for folder in ("a", "b"):
        path = tmp_path / folder / "orders-0"
        result.append(
            lw.generate("kafka.partition", path, rows=300, seed=9, recipe=recipe, segment_bytes=20_000)
        )
    assert result[0].manifest == result[1].manifest
    other = lw.generate("kafka.partition", tmp_path / "c" / "orders-0", rows=300, seed=10, recipe=recipe)
    assert digest(other) != digest(result[0])


def test_chunk_size_does_not_change_the_content(tmp_path: Path, monkeypatch: Any) -> None:
    """Neither the expected rows nor the hash of the content."""
    result = []
    for folder, piece in (("a", 1 << 16), ("b", 70)):
        monkeypatch.setattr(kafka_recipes, "_PIECE", piece)
        monkeypatch.setattr(script, "_WINDOW", piece)
        path = tmp_path / folder / "orders-0"
        result.append(
            lw.generate(
                "kafka.partition", path, rows=200, recipe="compressed", topic_id="AAAAAAAAAAAAAAAAAAAAAQ"
            )
        )
    assert result[0].manifest == result[1].manifest
    first, second = (Path(each.expected["read_committed"]).read_bytes() for each in result)
    assert first == second
    assert b"AAAAAAAAAAAAAAAAAAAAAQ" in (tmp_path / "a" / "orders-0" / "partition.metadata").read_bytes()


def test_content_hash_is_independent_of_compression(tmp_path: Path) -> None:
    """A compressor may write other bytes for the same content."""
    result = [
        lw.generate(
            "kafka.log",
            tmp_path / f"{level}.log",
            rows=500,
            compression_type="zstd",
            compression_zstd_level=level,
        )
        for level in (1, 19)
    ]
    first, second = (each.manifest["files"][0] for each in result)
    assert first["sha256"] != second["sha256"]
    assert first["content_sha256"] == second["content_sha256"]
    plain = lw.generate("kafka.log", tmp_path / "plain.log", rows=500)
    assert "content_sha256" not in plain.manifest["files"][0]


@pytest.mark.parametrize("magic", [0, 1])
def test_content_hash_of_messages_is_independent_of_compression(magic: int, tmp_path: Path) -> None:
    result = [
        lw.generate(
            "kafka.partition", tmp_path / str(level) / "orders-0", rows=500, magic=magic,
            compression_type="gzip", compression_gzip_level=level,
        )
        for level in (1, 9)
    ]  # fmt: skip
    first, second = (
        next(file for file in each.manifest["files"] if file["name"].endswith(".log")) for each in result
    )
    assert first["sha256"] != second["sha256"]
    assert first["content_sha256"] == second["content_sha256"]
    plain = lw.generate("kafka.log", tmp_path / "plain.log", rows=500, magic=magic)
    assert "content_sha256" not in plain.manifest["files"][0]
    assert lw.read(tmp_path / "plain.log").num_rows == 500


@pytest.mark.nightly
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_other_interpreters_generate_the_same(version: str, tmp_path: Path) -> None:
    python = shutil.which(f"python{version}")
    if (
        python is None
        or subprocess.run([python, "-c", "import logwright.api"], capture_output=True, check=False).returncode
    ):
        pytest.skip(f"there is no python{version} with logwright in it")
    code = (
        "import sys, logwright as lw\n"
        "for recipe in sys.argv[2:]: lw.generate('kafka.partition', f'{sys.argv[1]}/{recipe}-0', rows=200, recipe=recipe)"
    )
    names = [recipe for codec, recipe in RECIPES if codec == "kafka.partition" and recipe != "big"]
    for folder, interpreter in (("ours", sys.executable), ("theirs", python)):
        done = subprocess.run(
            [interpreter, "-c", code, str(tmp_path / folder), *names],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    for name in names:
        ours, theirs = (
            json.loads((tmp_path / folder / f"{name}-0.manifest.json").read_text())
            for folder in ("ours", "theirs")
        )
        for our_file, their_file in zip(ours["files"], theirs["files"], strict=True):
            assert our_file.get("content_sha256", our_file["sha256"]) == their_file.get(
                "content_sha256", their_file["sha256"]
            ), (
                name,
                our_file,
            )


# Refused


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    "there", ["orders-0", "orders-0.manifest.json", "orders-0.expected.jsonl", "orders-0.expected-x.jsonl"]
)
def test_existing_target_is_refused(there: str, tmp_path: Path) -> None:
    (tmp_path / there).write_bytes(b"mine")
    with pytest.raises(lw.ExistsError, match=there):
        lw.generate("kafka.partition", tmp_path / "orders-0", rows=3)
    assert listing(tmp_path) == [there]
    assert (tmp_path / there).read_bytes() == b"mine"


@pytest.mark.parametrize("number", [0, 1, 2])
def test_failure_leaves_no_files(number: int, tmp_path: Path, monkeypatch: Any) -> None:
    """The disk becomes full at each file in turn."""
    put, calls = module.put_whole, iter(range(10))

    def full(*args: Any) -> int:
        if next(calls) == number:
            raise OSError(28, "No space left on device")
        return put(*args)

    monkeypatch.setattr(module, "put_whole", full)
    with pytest.raises(lw.StorageError):
        lw.generate("kafka.partition", tmp_path / "orders-0", rows=30, recipe="transactions")
    assert listing(tmp_path) == []


def test_failure_of_the_directory_leaves_no_files(tmp_path: Path, monkeypatch: Any) -> None:
    def full(self: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.Transaction, "commit", full)
    with pytest.raises(lw.StorageError):
        lw.generate("kafka.partition", tmp_path / "orders-0", rows=30, recipe="transactions")
    assert listing(tmp_path) == []


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["generate", *args])
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (["kafka.partition"], 2, "missing argument PATH"),
        (["kafka.partition", "{}/orders"], 2, "not the name of a partition's directory. It is topic-partition, like orders-0"),
        (["kafka.partition", "{}/o-0", "--recipe", "heders"], 2, "no recipe 'heders' for kafka.partition. Did you mean 'headers'?"),
        (["kafka.partition", "{}/o-0", "--recipe", "zzz"], 2, "Valid values: plain, compressed,"),
        (["kafka.index", "{}/o"], 2, "no recipes for kafka.index. There are recipes for: kafka.partition, kafka.log"),
        (["kafka.lgo", "{}/o"], 2, "no codec or layout 'kafka.lgo'. Did you mean 'kafka.log'?"),
        (["kafka.partition", "{}/o-0", "--rows", "-1"], 2, "rows -1 is less than 0"),
        (["kafka.partition", "{}/o-0", "--rows", "many"], 2, "rows 'many': "),
        (["kafka.partition", "{}/o-0", "--segment-byte", "5"], 2, "unknown option 'segment-byte'. Did you mean 'segment.bytes'?"),
        (["kafka.partition", "s3://bucket/o-0"], 2, "only local file systems can be written"),
        (["kafka.log", "{}/"], 1, "it already exists"),
    ],
)  # fmt: skip
def test_errors_on_the_command_line(
    args: list[str], status: int, message: str, tmp_path: Path, capsys: Any
) -> None:
    assert run(*(argument.replace("{}", str(tmp_path)) for argument in args)) == status
    assert message in capsys.readouterr().err
    assert listing(tmp_path) == []


def test_generate_on_the_command_line(tmp_path: Path, capsys: Any) -> None:
    assert run("kafka.partition", "--recipe", "list") == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown] == [recipe.name for recipe in recipes("kafka.partition")]
    assert shown[0].endswith("(default)")
    path = str(tmp_path / "orders-0")
    assert run("kafka.partition", path, "--rows", "10", "--recipe=open", "--index-interval-bytes", "64") == 0
    message = capsys.readouterr()
    assert message.out == ""
    assert f"{path}: 10 rows" in message.err
    assert json.loads(Path(f"{path}.manifest.json").read_text())["options"] == {"index.interval.bytes": 64}


# Random numbers


def test_splitmix64_gives_the_words_of_the_reference_implementation() -> None:
    """The reference implementation's first words for the seed 1234567."""
    from logwright.corpora.rng import _GAMMA, _mix

    seed = 1234567
    words = [_mix(seed + i * _GAMMA & (1 << 64) - 1) for i in (1, 2, 3)]
    assert words == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_slices_of_a_random_stream_are_its_words() -> None:
    rng = Rng(5, "a")
    words = [rng.word() for _ in range(20)]
    assert Rng(5, "a").words(3, 10).tolist() == words[3:13]
    assert Rng(5, "b").words(0, 20).tolist() != words
    assert Rng(6, "a").words(0, 20).tolist() != words
    assert Rng(5).stream("a").words(0, 20).tolist() == words
    assert Rng(5, "a").bytes(20) == b"".join(word.to_bytes(8, "little") for word in words)[:20]


def test_random_numbers_are_in_bounds() -> None:
    rng = Rng(0)
    numbers = rng.numbers(0, 10_000, 7)
    assert set(numbers.tolist()) == set(range(7))
    assert np.bincount(numbers).min() > 1200
    assert {rng.between(3, 5) for _ in range(100)} == {3, 4, 5}
    assert {rng.choice("ab") for _ in range(50)} == {"a", "b"}
    assert rng.numbers(0, 3, 1 << 32).max() < 1 << 32
    assert len(text(rng, 1000)) == 1000
    assert text(rng, 0) == b""


def test_expected_lines_of_unusual_values() -> None:
    batch = pa.record_batch(
        {
            "a": pa.array([b'quote"', b"\xff", None, "é".encode()], pa.binary()),
            "b": pa.array(["x", "y", None, "\x7f"]),
            "c": pa.array([1, None, -3, 4], pa.timestamp("ms", "UTC")),
            "d": pa.array([[], [{"k": b"\x00"}], None, []], pa.list_(pa.struct([("k", pa.binary())]))),
            "e": pa.nulls(4, pa.string()),
        }
    )
    assert objects(lines(batch)) == [
        {"a": 'quote"', "b": "x", "c": 1, "d": [], "e": None},
        {"a": {"$hex": "ff"}, "b": "y", "c": None, "d": [{"k": "\x00"}], "e": None},
        {"a": None, "b": None, "c": -3, "d": None, "e": None},
        {"a": "é", "b": "\x7f", "c": 4, "d": [], "e": None},
    ]
    assert lines(batch.slice(0, 0)) == b""
    assert objects(lines(batch.slice(2, 1))) == objects(lines(batch))[2:3]


def one_by_one(path: Path) -> Iterator[bytes]:
    yield from path.read_bytes().splitlines()


@pytest.mark.nightly
def test_many_rows_take_seconds(tmp_path: Path) -> None:
    import time

    start = time.monotonic()
    lw.generate("kafka.partition", tmp_path / "orders-0", rows=2_000_000)
    assert time.monotonic() - start < 60
    assert sum(1 for _ in one_by_one(tmp_path / "orders-0.expected.jsonl")) == 2_000_000


def test_golden_cases_are_found_in_the_repository() -> None:
    with pytest.raises(lw.NotFoundError, match="in the repository, not in the installed package"):
        cases.cases("nosuch")
