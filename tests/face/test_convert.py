"""`convert`: between tables, JSON lines and native files; every loss is reported."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import logwright as lw
from logwright.cli import main
from logwright.codec import registry
from logwright.codec.table import TIMESTAMP, Column, Table
from logwright.corpora.cases import cases
from logwright.formats import jsonl

KAFKA = cases("kafka")
LEVELDB = cases("leveldb")
SMALL = Table(
    "rows",
    (
        Column("key", pa.binary(), "bytes"),
        Column("text", pa.string(), "text"),
        Column("when", TIMESTAMP, "a time"),
        Column("yes", pa.bool_(), "a truth"),
        Column("small", pa.int8(), "a number"),
        Column("large", pa.large_binary(), "bytes"),
        Column(
            "headers",
            pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])),
            "pairs",
        ),
    ),
)


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


def golden() -> list[tuple[str, Path]]:
    actual = []
    for name in (
        "craft_append_time", "craft_header_key_bytes", "craft_empty_batches", "craft_delete_horizon", "craft_record_attr",
        "v2_txn_interleaved", "v2_txn_commit_abort", "craft_ts_minus1", "craft_zstd_two_frames",
    ):  # fmt: skip
        actual += [
            (name, path)
            for path in sorted(KAFKA[name].partition.iterdir())
            if path.suffix in (".log", ".timeindex", ".snapshot")
        ][:3]
    for name in ("deletes_wal", "jni_sst"):
        actual += [
            (name, path)
            for path in sorted((LEVELDB[name].path / "db").iterdir())
            if path.suffix in (".log", ".sst", ".ldb")
        ]
    return actual


GOLDEN = golden()
IDS = [f"{name}-{path.name}" for name, path in GOLDEN]


# JSON lines

values = st.fixed_dictionaries(
    {
        "key": st.one_of(st.none(), st.binary(max_size=4)),
        "text": st.one_of(st.none(), st.text(max_size=4)),
        "when": st.one_of(st.none(), st.integers(-(10**15), 10**15)),
        "yes": st.one_of(st.none(), st.booleans()),
        "small": st.one_of(st.none(), st.integers(-128, 127)),
        "large": st.one_of(st.none(), st.binary(max_size=4)),
        "headers": st.one_of(
            st.none(),
            st.lists(st.fixed_dictionaries({"key": st.text(max_size=2), "value": st.one_of(st.none(), st.binary(max_size=2))}), max_size=2),
        ),
    }
)  # fmt: skip


@given(st.lists(values, min_size=1, max_size=8))
def test_json_lines_round_trip(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]) -> None:
    schema = SMALL.schema()
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    path = tmp_path_factory.mktemp("lines") / "x.jsonl"
    path.write_bytes(jsonl.to_lines(batch))
    assert jsonl.from_lines(str(path), SMALL).read_all().to_batches()[0].equals(batch)


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("{", "line 1 is not JSON"),
        ("[1]", "line 1 is not an object"),
        ('{"ky": 1}', "Did you mean 'key'"),
        ('{"key": 1}', "line 1, column 'key': expected binary, found 1"),
        ('{"key": {"$hex": "zz"}}', "expected binary"),
        ('{"key": {"$hax": "00"}}', "expected binary"),
        ('{"key": {"a": 1, "b": 2}}', "expected binary"),
        ('{"text": 1}', "expected string"),
        ('{"when": true}', "expected timestamp"),
        ('{"when": "yesterday"}', "expected timestamp"),
        ('{"yes": 1}', "expected bool"),
        ('{"small": 1000}', "expected int8, found 1000"),
        ('{"small": 1.5}', "expected int8"),
        ('{"headers": {}}', "expected list"),
        ('{"headers": [{"name": "x"}]}', "expected list"),
    ],
)
def test_invalid_json_lines_are_named(tmp_path: Path, line: str, match: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(f"\n{line}\n" if "line 1" not in match else f"{line}\n")
    with pytest.raises(lw.UsageError, match=match):
        jsonl.from_lines(str(path), SMALL).read_all()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.decimal128(6, 2), '"abc"'),
        (pa.date32(), '"2020-13-01"'),
        (pa.map_(pa.string(), pa.string()), '["ab"]'),
        (pa.map_(pa.string(), pa.string()), '{"ab": "x"}'),
    ],
)
def test_decimals_dates_and_maps_of_another_form_are_refused(
    tmp_path: Path, kind: pa.DataType, text: str
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(f'{{"value": {text}}}\n')
    table = Table("rows", (Column("value", kind, "any"),))
    with pytest.raises(lw.UsageError, match=r"line 1, column 'value': expected .*, found"):
        jsonl.from_lines(str(path), table).read_all()


def test_times_as_text_and_missing_fields(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(
        '{"key": "a", "when": "1970-01-01T00:00:01Z"}\n\n{"when": "1970-01-01T00:00:02"}\n{"key": null}\n'
    )
    actual = jsonl.from_lines(str(path), SMALL).read_all()
    assert actual.column("when").cast(pa.int64()).to_pylist() == [1000, 2000, None]
    assert actual.column("key").to_pylist() == [b"a", None, None]
    path.write_text("")
    assert jsonl.from_lines(str(path), SMALL).read_all().num_rows == 0


def test_column_that_appears_late_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "_ROWS", 2)
    path = tmp_path / "x.jsonl"
    path.write_text('{"key": "a"}\n{"key": "b"}\n{"key": "c", "text": "t"}\n')
    with pytest.raises(lw.UsageError, match="line 3 has a column 'text'"):
        jsonl.from_lines(str(path), SMALL).read_all()


@pytest.mark.parametrize(("name", "path"), GOLDEN, ids=IDS)
def test_golden_files_through_json_lines(tmp_path: Path, name: str, path: Path) -> None:
    codec = lw.detect(path)
    assert codec is not None
    out, back = tmp_path / "x.jsonl", tmp_path / path.name
    lw.convert(path, out)
    assert (tmp_path / "x.frames.jsonl").exists()
    lw.convert(out, back, codec)
    assert back.read_bytes() == path.read_bytes()


# Native files to native ones


@pytest.mark.parametrize(("name", "path"), GOLDEN, ids=IDS)
def test_file_to_file_keeps_the_bytes(tmp_path: Path, name: str, path: Path) -> None:
    done = lw.convert(path, tmp_path / path.name)
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()
    assert done["notes"] == ()


@pytest.mark.alike
@pytest.mark.parametrize(
    "name", ["v2_txn_interleaved", "craft_append_time", "craft_empty_batches", "craft_header_key_bytes"]
)
@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_recompression_changes_only_the_compression(tmp_path: Path, name: str, compression: str) -> None:
    source = KAFKA[name].partition
    for path in (source / next(source.glob("*.log")).name, source):
        out = tmp_path / compression / path.name
        lw.convert(path, out, compression_type=compression)
        columns = [
            name
            for name in registry.get("kafka.log").tables["rows"].names(detail=True)
            if name not in ("position", "topic", "partition", "compression")
        ]
        view = "log" if path.is_dir() else None
        assert lw.diff(path, out, columns=columns, view=view).equal
        kept = [
            name
            for name in registry.get("kafka.log").tables["frames"].names(detail=True)
            if name not in ("position", "size", "crc", "batch_length", "payload", "attributes", "compression")
        ]
        assert lw.diff(path, out, columns=kept, view="frames").equal
        rows = set(
            lw.read(out, view="frames", filter="records_count > 0 and is_control == false")
            .column("compression")
            .to_pylist()
        )
        assert rows <= {compression}
        assert lw.verify(out).ok


def test_partition_without_options_is_copied(tmp_path: Path) -> None:
    source = KAFKA["v2_txn_commit_abort"].partition
    done = lw.convert(source, tmp_path / source.name)
    for path in source.glob("*.log"):
        assert (tmp_path / source.name / path.name).read_bytes() == path.read_bytes()
    assert done["rows"] > 0
    assert done["written"].before_you_start


def test_transactions_are_only_flattened_on_request(tmp_path: Path) -> None:
    source = KAFKA["v2_txn_interleaved"].partition
    with pytest.raises(lw.UsageError, match="belong to transactions"):
        lw.convert(source, tmp_path / "x-0", partition_leader_epoch=3)
    assert not (tmp_path / "x-0").exists()
    done = lw.convert(source, tmp_path / "y-0", batch_size="1k", view="read_committed")
    assert any("transactions" in note for note in done["notes"])
    assert any("producer id" in note for note in done["notes"])
    assert any("control records" in note for note in done["notes"])
    table = lw.read(source, view="read_committed", columns="offset,key,value,headers,timestamp")
    assert lw.read(tmp_path / "y-0", columns="offset,key,value,headers,timestamp").equals(table)
    with pytest.raises(lw.UsageError, match="control record"):
        lw.convert(source, tmp_path / "z-0", view="log", batch_size="1k")


def plain(path: Path, count: int = 500) -> Path:
    rows = pa.table(
        {
            "key": pa.array([b"k%03d" % (n % 50) for n in range(count)], pa.binary()),
            "value": pa.array([b"v%d" % n for n in range(count)], pa.binary()),
            "timestamp": pa.array(range(count), pa.timestamp("ms", "UTC")),
        }
    )
    lw.write(rows, path, "kafka.partition", segment_bytes="5k", batch_size="1k")
    return path


def test_selection_by_offset_and_time(tmp_path: Path) -> None:
    source = plain(tmp_path / "a" / "orders-0")
    lw.convert(
        source, tmp_path / "b" / "orders-0", filter="offset >= 100 and timestamp < 1970-01-01T00:00:00.300Z"
    )
    table = lw.read(tmp_path / "b" / "orders-0", columns="offset")
    assert table.column("offset").to_pylist() == list(range(100, 300))
    lw.convert(source, tmp_path / "c" / "orders-0", limit=7, segment_bytes="1m")
    assert lw.read(tmp_path / "c" / "orders-0").num_rows == 7
    assert lw.diff(source, tmp_path / "c" / "orders-0", filter="offset < 7").equal


def test_segment_and_batch_sizes_are_changed(tmp_path: Path) -> None:
    source = plain(tmp_path / "a" / "orders-0")
    done = lw.convert(
        source, tmp_path / "b" / "orders-0", segment_bytes="1m", batch_size="16k", compression_type="lz4"
    )
    assert lw.diff(source, tmp_path / "b" / "orders-0").equal
    assert len([name for name in done["files"] if name.endswith(".log")]) == 1
    segment = source / "00000000000000000000.log"
    lw.convert(segment, tmp_path / segment.name, batch_size="100")
    assert lw.diff(segment, tmp_path / segment.name).equal
    assert lw.read(tmp_path / segment.name, view="frames").num_rows > lw.read(segment, view="frames").num_rows
    lw.convert(source, tmp_path / "b" / "orders-0", if_exists="overwrite")
    with pytest.raises(lw.ExistsError):
        lw.convert(source, tmp_path / "b" / "orders-0")
    with pytest.raises(lw.UsageError, match="unknown option 'block_size'"):
        lw.convert(source, tmp_path / "d" / "orders-0", block_size="1k")


def test_standard_input_is_read_once_and_opened_several_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = plain(tmp_path / "a" / "orders-0") / "00000000000000000000.log"
    for limit in (8 << 20, 100):
        monkeypatch.setattr("logwright.readers.source._SPOOL", limit)  # more goes to a temporary file
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(segment.read_bytes())))
        lw.convert("-", tmp_path / str(limit), codec="kafka.log")
        assert (tmp_path / str(limit)).read_bytes() == segment.read_bytes()
    lw.convert("-", tmp_path / "copy-0", codec="kafka.partition")
    assert lw.diff(segment, tmp_path / "copy-0", columns="key").equal


@pytest.mark.parametrize("form", ["jsonl", "parquet", "arrow"])
def test_table_on_standard_input_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    table = tmp_path / f"rows.{form}"
    lw.convert(plain(tmp_path / "orders-0"), table)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(table.read_bytes())))
    with pytest.raises(lw.UsageError, match=r"this is a table file.* Save it as a file"):
        lw.convert("-", tmp_path / "copy-0", codec="kafka.partition")


def test_target_of_the_same_ending_has_the_same_format(tmp_path: Path) -> None:
    segment = plain(tmp_path / "orders-0") / "00000000000000000000.log"
    lw.convert(segment, tmp_path / "a.log", compression_type="zstd")  # a name of BookKeeper's entry logs
    assert lw.diff(segment, tmp_path / "a.log", columns="offset,key,value", codec="kafka.log").equal


def test_input_is_never_replaced(tmp_path: Path) -> None:
    source = plain(tmp_path / "logs" / "orders-0")
    (tmp_path / "link-0").symlink_to(source)
    segment = source / "00000000000000000000.log"
    before = contents(tmp_path / "logs")
    cases: list[tuple[Path, Path, dict[str, Any]]] = [
        (source, source, {"limit": 3}),
        (source, tmp_path / "link-0", {"compression_type": "zstd"}),
        (tmp_path / "link-0", source, {}),
        (source, tmp_path / "logs", {"codec": "kafka.logdir"}),
        (segment, segment, {"limit": 3}),
        (segment, source, {"codec": "kafka.partition"}),
    ]
    for own, target, words in cases:
        with pytest.raises(lw.UsageError, match="would replace its input"):
            lw.convert(own, target, if_exists="overwrite", **words)
    with pytest.raises(lw.UsageError, match="would replace its input"):
        lw.convert(source, source, if_exists="append", offsets="assign")
    assert run("dump", str(segment), "-o", str(segment), "--format", "jsonl", "--if-exists", "overwrite") == 2
    assert contents(tmp_path / "logs") == before


def contents(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def test_leveldb_databases_are_converted(tmp_path: Path) -> None:
    rows = pa.table({"key": [b"k%04d" % n for n in range(2000)], "value": [b"v%d" % n for n in range(2000)]})
    lw.write(rows, tmp_path / "a", "leveldb.db")
    done = lw.convert(
        tmp_path / "a", tmp_path / "b", block_size="1k", compression="zstd", bloom_bits_per_key=10
    )
    assert lw.diff(tmp_path / "a", tmp_path / "b").equal
    assert any("overwritten and deleted entries" in note for note in done["notes"])
    lw.convert(tmp_path / "a", tmp_path / "c", filter="key >= k1000", write_as="logs", sequences="assign")
    assert lw.read(tmp_path / "c").num_rows == 1000
    source = LEVELDB["deletes_wal"].path / "db"
    here = shutil.copytree(source, tmp_path / "d")
    lw.convert(here, tmp_path / "e", view="history")
    assert lw.diff(here, tmp_path / "e").equal
    table = next((tmp_path / "a").glob("*.ldb"))
    lw.convert(table, tmp_path / "f" / table.name, block_size="512")
    assert lw.diff(table, tmp_path / "f" / table.name).equal
    assert (
        lw.read(tmp_path / "f" / table.name, view="frames").num_rows > lw.read(table, view="frames").num_rows
    )


def test_several_sources_need_a_codec(tmp_path: Path) -> None:
    for name in ("orders-0", "orders-1"):
        plain(tmp_path / name)
    with pytest.raises(lw.UsageError, match="2 stores or files match"):
        lw.convert(f"{tmp_path}/orders-*", tmp_path / "out")


def test_convert_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = plain(tmp_path / "a" / "orders-0")
    lines = tmp_path / "rows.jsonl"
    assert run("convert", str(source), str(lines)) == 0
    assert json.loads(lines.read_text().splitlines()[3])["key"] == "k003"
    assert run("convert", str(lines), str(tmp_path / "b" / "orders-0"), "--codec", "kafka.partition") == 0
    assert run("diff", str(source), str(tmp_path / "b" / "orders-0")) == 0
    capsys.readouterr()
    assert (
        run(
            "convert",
            str(source),
            str(tmp_path / "c" / "orders-0"),
            "--batch-size",
            "2k",
            "--filter",
            "offset < 9",
        )
        == 0
    )
    err = capsys.readouterr().err
    assert "9 rows" in err
    assert run("convert", str(source), str(tmp_path / "d" / "orders-0"), "--magic", "1") == 0
    assert (
        "note: these are the rows of view read_uncommitted, without control records"
        in capsys.readouterr().err
    )
    assert run("convert", str(source), str(tmp_path / "d" / "orders-0"), "--magic", "1") == 1


def filters(path: Path) -> list[bytes]:
    frames = lw.read(path, "leveldb.table", view="frames", columns=["kind", "payload"])
    return [row["payload"] for row in frames.to_pylist() if row["kind"] == "filter"]


@pytest.mark.parametrize("bits", [3, 10, 24])
def test_bloom_filter_is_kept(tmp_path: Path, bits: int) -> None:
    source = tmp_path / "source"
    rows = {"key": [b"key-%05d" % n for n in range(3000)], "value": [b"v" * 20] * 3000}
    lw.write(pa.table(rows), source, "leveldb.db", bloom_bits_per_key=bits, compression="none")
    report = lw.convert(source, tmp_path / "zstd", codec="leveldb.db", compression="zstd")
    assert f"using bloom_bits_per_key={bits}, as in {source}" in report["notes"]
    expected = tmp_path / "wanted"
    lw.write(pa.table(rows), expected, "leveldb.db", bloom_bits_per_key=bits, compression="zstd")
    assert filters(tmp_path / "zstd" / "000002.ldb") == filters(expected / "000002.ldb") != []
    assert lw.verify(tmp_path / "zstd").ok
    report = lw.convert(source / "000002.ldb", tmp_path / "000007.ldb", block_size=1024)
    assert f"using bloom_bits_per_key={bits}, as in {source / '000002.ldb'}" in report["notes"]
    assert filters(tmp_path / "000007.ldb") != []
    for name, option in (("none", 0), ("other", 7)):
        result = tmp_path / name
        report = lw.convert(
            source, result, codec="leveldb.db", compression="zstd", **{"bloom.bits.per.key": option}
        )
        assert not any("bloom" in note for note in report["notes"])
        assert bool(filters(result / "000002.ldb")) == bool(option)


def test_missing_bloom_filter_is_not_added(tmp_path: Path) -> None:
    source = tmp_path / "source"
    lw.write(pa.table({"key": [b"a"], "value": [b"b"]}), source, "leveldb.db")
    report = lw.convert(source, tmp_path / "made", codec="leveldb.db", compression="zstd")
    assert not any("bloom" in note for note in report["notes"])
    assert filters(tmp_path / "made" / "000002.ldb") == []


def test_history_round_trips_through_json_lines(tmp_path: Path) -> None:
    source = LEVELDB["deletes_tables"].path / "db"
    lw.convert(source, tmp_path / "history.jsonl", view="history")
    assert '"state":' in (tmp_path / "history.jsonl").read_text()
    lw.convert(tmp_path / "history.jsonl", tmp_path / "again", codec="leveldb.db")
    assert lw.diff(source, tmp_path / "again").equal
    assert lw.read(tmp_path / "again", view="history").num_rows > lw.read(source).num_rows
    (tmp_path / "no.jsonl").write_text('{"key": "a", "stat": "live"}\n')
    with pytest.raises(lw.UsageError, match="no column 'stat'"):
        lw.convert(tmp_path / "no.jsonl", tmp_path / "no", codec="leveldb.db")


def test_same_column_name_with_another_meaning(tmp_path: Path) -> None:
    rows = {"key": [b"a", b"b"], "value": [b"x", b"y"], "timestamp": pa.array([5, 6], pa.int64())}
    lw.write(pa.table(rows), tmp_path / "orders-0", "kafka.partition")
    # Batches have a sequence too, that of their producer.
    assert "sequence" in lw.read(tmp_path / "orders-0", columns="*").schema.names
    lw.convert(tmp_path / "orders-0", tmp_path / "db", codec="leveldb.db")
    assert lw.read(tmp_path / "db").to_pylist() == [
        {"key": b"a", "value": b"x", "sequence": 1, "type": "value"},
        {"key": b"b", "value": b"y", "sequence": 1, "type": "value"},
    ]


def test_notes_on_a_database_with_an_unknown_comparator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = LEVELDB["custom_comparator"].path / "db"
    with pytest.raises(SystemExit) as ended:
        main(["convert", str(source), str(tmp_path / "made"), "--codec", "leveldb.db"])
    assert ended.value.code == 0
    err = capsys.readouterr().err
    assert "order is unknown" in " ".join(err.split())
    assert "nothing matches" not in err
