"""Names of store files: those that a broker loads, and those that contradict the content."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from stores import INDEX, ROWS, SIZES, faults_of

import logwright as lw
from logwright.codec.fault import Kind
from logwright.codec.rocketmq.formats.commitlog.layout import MESSAGE

pytestmark = pytest.mark.filterwarnings("ignore::logwright.DamageWarning")


@pytest.mark.alike
@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/T0/0"])
@pytest.mark.parametrize(
    ("name", "loads"),
    [
        ("+" + "0" * 19, True),
        ("0" * 21, True),
        ("-" + "0" * 20, True),
        ("9" * 20, False),
        ("abc", False),
        ("0" * 20 + ".tmp", False),
    ],
)
def test_fault_of_a_file_name_says_whether_a_broker_loads_the_file(
    folder: str, name: str, loads: bool, tmp_path: Path
) -> None:
    home = tmp_path / "store"
    lw.write(ROWS, home, "rocketmq.store", **SIZES)
    min((home / folder).iterdir()).rename(home / folder / name)
    report = lw.verify(home, as_system="5.5.0", **SIZES)
    assert report.system is not None
    assert report.system["opens"] == loads
    (fault,) = (fault for file in report.files for fault in file.faults if "name is not that" in fault.detail)
    expected = "a broker loads it as the file of offset 0" if loads else "a broker does not load the store"
    assert fault.system == expected


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/T0/0"])
def test_name_without_padding_is_a_warning(folder: str, keyed: Path) -> None:
    for path in (keyed / folder).iterdir():
        path.rename(path.with_name(str(int(path.name))))
    report = lw.verify(keyed)
    assert report.ok
    assert sum("not padded" in fault.detail for _, fault in report.faults) == len(
        [*(keyed / folder).iterdir()]
    )


@pytest.mark.alike
@pytest.mark.parametrize("units", [1, 3, 50])
@pytest.mark.parametrize("files", ["first", "all"])
def test_queue_file_with_the_name_of_another_one_is_an_error(units: int, files: str, tmp_path: Path) -> None:
    size = 20 * units
    home = tmp_path / "store"
    rows = [{"topic": "T", "queue_id": 0, "body": b"x"} for _ in range(5)]
    sizes = {"mappedFileSizeConsumeQueue": size, "mappedFileSizeCommitLog": 4096, **INDEX}
    lw.write(rows, home, "rocketmq.store", **sizes)
    assert lw.verify(home, **sizes).ok
    queue = sorted((home / "consumequeue" / "T" / "0").iterdir(), reverse=True)
    for file in queue if files == "all" else queue[-1:]:
        file.rename(file.with_name(f"{int(file.name) + 100 * size:020d}"))
    report = lw.verify(home, **sizes)
    assert not report.ok
    wrong = {name: fault.detail for name, fault in report.faults if fault.kind is Kind.ORDER}
    name = f"consumequeue/T/0/{100 * size:020d}"
    assert "queue offset 0 on" in wrong[name]
    assert f"should be {0:020d}" in wrong[name]


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
def test_queue_file_whose_name_is_no_multiple_of_a_unit_is_rebuilt(tmp_path: Path) -> None:
    rows = [{"topic": "T", "queue_id": 0, "body": bytes(50)} for _ in range(8)]
    sizes = {"mappedFileSizeCommitLog": 4096, "mappedFileSizeConsumeQueue": 100, **INDEX}
    lw.write(rows, tmp_path / "store", "rocketmq.store", **sizes)
    queue = tmp_path / "store/consumequeue/T/0"
    (queue / f"{0:020d}").rename(queue / f"{7:020d}")
    report = lw.verify(tmp_path / "store", as_system="5.5.0", **sizes)
    assert report.system is not None
    assert report.system["rows_lost"] == 5
    assert not report.ok
    lw.repair(tmp_path / "store", tmp_path / "out", **sizes)
    assert lw.verify(tmp_path / "out", **sizes).ok
    assert lw.read(tmp_path / "out", mode="AS_SYSTEM", **sizes).num_rows == 8


def test_exchanged_files_of_a_batch_queue_are_an_error(tmp_path: Path) -> None:
    """Its units have no queue offsets that follow from their places, so only their order shows it."""
    home, options = tmp_path / "store", {**SIZES, "mapperFileSizeBatchConsumeQueue": 138}
    rows = [{"topic": "B", "body": b"x", "store_timestamp_ms": 1_700_000_000_000 + n} for n in range(7)]
    lw.write(rows, home, "rocketmq.store", batch_topics="B", **options)
    first, second = (home / f"batchconsumequeue/B/0/{base:020d}" for base in (0, 138))
    data = first.read_bytes(), second.read_bytes()
    first.write_bytes(data[1])
    second.write_bytes(data[0])
    paths = {path for path, *_ in faults_of(home)}
    assert str(second.relative_to(home)) in paths
    lw.repair(home, tmp_path / "out", **options)
    assert [(tmp_path / "out" / file.relative_to(home)).read_bytes() for file in (first, second)] == [*data]


@pytest.mark.parametrize("name", ["0" * 20 + ".bak", "200"])
def test_file_among_extension_files_that_a_broker_would_misread_is_removed(name: str, tmp_path: Path) -> None:
    home = tmp_path / "store"
    options = {**SIZES, "enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 200}
    lw.write(ROWS, home, "rocketmq.store", **options)
    file = next((home / "consumequeue_ext").rglob("0*0"))
    shutil.copy(file, file.parent / name)
    del options["maxIndexNum"]
    lw.repair(home, tmp_path / "out", **options)
    assert not list((tmp_path / "out").rglob(name))
    report = lw.verify(tmp_path / "out", as_system="5.5.0", **options)
    assert report.ok, report.text()


QUEUES = [{"topic": "T", "queue_id": i % 2, "body": bytes([65 + i]) * 200} for i in range(10)]


SMALL = {"mappedFileSizeCommitLog": 2048, "mappedFileSizeConsumeQueue": 60, **INDEX}


@pytest.mark.parametrize(("name", "other"), [("1", "7"), ("1", "0")])
def test_queue_folder_of_another_name_corrects_no_message(name: str, other: str, tmp_path: Path) -> None:
    home, out = tmp_path / "store", tmp_path / "out"
    lw.write(QUEUES, home, "rocketmq.store", **SMALL)
    expected = lw.read(home)
    folder = home / "consumequeue/T"
    if (folder / other).exists():
        (folder / other).rename(folder / "was")
    (folder / name).rename(folder / other)
    if (folder / "was").exists():
        (folder / "was").rename(folder / name)
    lw.repair(home, out, **SMALL)
    assert lw.read(out).equals(expected)
    report = lw.verify(out, as_system="5.5.0", **SMALL)
    assert report.ok
    assert report.system is not None
    assert report.system["rows_lost"] == 0


@pytest.mark.parametrize("by", [1024, 2048, 5000])
def test_log_whose_files_were_all_renamed_gets_its_names_back(by: int, tmp_path: Path) -> None:
    home, out = tmp_path / "store", tmp_path / "out"
    lw.write(QUEUES, home, "rocketmq.store", **SMALL)
    expected = lw.read(home)
    for path in sorted(home.glob("commitlog/*"), reverse=True):
        path.rename(path.with_name(f"{int(path.name) + by:020d}"))
    lw.repair(home, out, **SMALL)
    assert sorted(path.name for path in out.glob("commitlog/*"))[:2] == [f"{0:020d}", f"{2048:020d}"]
    assert lw.read(out).equals(expected)


@pytest.mark.parametrize("name", ["12345", f"{1 << 40:020d}"])
def test_copy_of_a_log_file_under_another_number_is_told_its_name(name: str, tmp_path: Path) -> None:
    """Under that name, or one that is no number, all its messages are read."""
    lw.write(ROWS, tmp_path / "store", "rocketmq.store", **SIZES)
    second = tmp_path / f"store/commitlog/{2048:020d}"
    count = lw.read(second).num_rows
    shutil.copy(second, tmp_path / name)
    (fault,) = (fault for _, fault in lw.verify(tmp_path / name).faults)
    assert fault.detail.endswith(f"if the file was renamed, its name was {second.name}")
    (tmp_path / name).rename(tmp_path / "copy.log")
    assert lw.read(tmp_path / "copy.log").num_rows == count


ONE_PER_FILE = [{"topic": "T", "body": bytes([65 + i]) * 1800} for i in range(6)]


@pytest.mark.parametrize("damage", ["no multiple", "of a missing file", "exchanged"])
def test_message_of_a_renamed_file_is_moved_although_one_bit_would_fit_its_place(
    damage: str, tmp_path: Path
) -> None:
    """The names differ from the right ones by one bit, and each file has one message: nothing in a file shows which of both is wrong."""
    home, out = tmp_path / "store", tmp_path / "out"
    lw.write(ONE_PER_FILE, home, "rocketmq.store", **SMALL)
    expected = lw.read(home)
    logs = sorted(home.glob("commitlog/*"))
    assert len(logs) == 6
    if damage == "exchanged":
        data = logs[2].read_bytes()
        logs[2].write_bytes(logs[3].read_bytes())
        logs[3].write_bytes(data)
    else:
        logs[2].rename(logs[2].with_name(f"{4097 if damage == 'no multiple' else 4096 + (1 << 15):020d}"))
    lw.repair(home, out, **SMALL)
    assert lw.read(out).equals(expected)
    assert [path.name for path in sorted(out.glob("commitlog/*"))] == [path.name for path in logs]


@pytest.mark.parametrize("bit", [0, 12, 13, 40])
def test_flipped_bit_of_a_physical_offset_is_corrected_in_a_file_with_one_message(
    bit: int, tmp_path: Path
) -> None:
    home, out = tmp_path / "store", tmp_path / "out"
    lw.write(ONE_PER_FILE, home, "rocketmq.store", **SMALL)
    expected = lw.read(home)
    path = sorted(home.glob("commitlog/*"))[2]
    data = bytearray(path.read_bytes())
    at = MESSAGE.offset("physical_offset") + 7 - bit // 8
    data[at] ^= 1 << bit % 8
    path.write_bytes(data)
    lw.repair(home, out, **SMALL)
    assert lw.read(out).equals(expected)


def test_lost_message_gets_its_queue_offset_although_the_queue_file_was_renamed(tmp_path: Path) -> None:
    """Units of undamaged messages show the queue offsets of the file."""
    home, out = tmp_path / "store", tmp_path / "out"
    rows = [{"topic": "T", "queue_id": i // 4, "body": bytes([65 + i]) * 100} for i in range(5)]
    options = {**SMALL, "mappedFileSizeConsumeQueue": 200}
    lw.write(rows, home, "rocketmq.store", **options)
    queue, log = home / f"consumequeue/T/0/{0:020d}", home / f"commitlog/{0:020d}"
    queue.rename(queue.with_name(f"{200:020d}"))
    places = lw.read(home)["physical_offset"].to_pylist()
    data = bytearray(log.read_bytes())
    data[places[3] + 100 : places[3] + 130] = bytes(30)  # in the body
    log.write_bytes(data)
    lw.repair(home, out, **options)
    assert lw.verify(out, **options).ok
    assert lw.read(out)["queue_offset"].to_pylist() == [0, 1, 2, 0]
    units = lw.read(out / f"consumequeue/T/0/{0:020d}")
    assert units["physical_offset"].to_pylist()[:4] == places[:4]


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_start_ignores_an_incomplete_unit_at_the_end_of_a_misnamed_queue_file(
    version: str, tmp_path: Path
) -> None:
    home, options = tmp_path / "store", {**SMALL, "mappedFileSizeConsumeQueue": 200}
    lw.write(QUEUES, home, "rocketmq.store", **options)
    (queue,) = (home / "consumequeue/T/0").iterdir()
    queue.rename(queue.with_name(f"{1:020d}"))
    for log in sorted(home.glob("commitlog/*"))[::-1]:
        log.rename(log.with_name(f"{int(log.name) + (1 << 20):020d}"))
    report = lw.verify(home, as_system=version, **options)
    assert report.system is not None
    assert report.system["opens"]
