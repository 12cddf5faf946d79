"""Messages after inserted or lost bytes: reading finds them, and a repair puts them where their physical offsets say."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import logwright as lw
from logwright.codec.arrays import Bytes
from logwright.codec.frames.resync import Candidates, Finder
from logwright.codec.frames.scanner import Scanner
from logwright.codec.frames.walk import MemoryFile, Walk, good_frames
from logwright.codec.option import Options
from logwright.codec.rocketmq.formats.commitlog.codec import CODEC
from logwright.codec.rocketmq.formats.commitlog.layout import BODY, MESSAGE, V1, body_crc
from logwright.codec.rocketmq.store.log import LogFile, Run
from logwright.roundtrip import laws
from logwright.roundtrip.specimen import Specimen

pytestmark = pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
SIZE = 4096
OPTIONS = {
    "mappedFileSizeCommitLog": SIZE, "mappedFileSizeConsumeQueue": 400, "maxHashSlotNum": 10, "maxIndexNum": 200,
}  # fmt: skip
TIME = 1_700_000_000_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of four files."""
    chance = random.Random(3)
    rows = [
        {"topic": "A", "queue_id": n % 2, "store_timestamp_ms": TIME + 10 * n, "keys": f"k{n}", "body": chance.randbytes(chance.randrange(60))}
        for n in range(110)
    ]  # fmt: skip
    home = tmp_path_factory.mktemp("displaced") / "store"
    lw.write(rows, home, "rocketmq.store", **OPTIONS)
    return home


def logs(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def offsets(path: Path) -> list[int]:
    numbers: list[int] = lw.read(path, mode="DROPMALFORMED", correct=False)["physical_offset"].to_pylist()
    return numbers


def messages(file: Path) -> list[tuple[int, bytes]]:
    """Return the place and the bytes of each message of a file."""
    content = file.read_bytes()
    frames = lw.read(file, view="frames", columns=["position", "size", "kind"]).to_pylist()
    return [
        (row["position"], content[row["position"] : row["position"] + row["size"]]) for row in frames if row["kind"] == "message"
    ]  # fmt: skip


def changed(store: Path, home: Path, files: dict[str, bytes]) -> Path:
    """Return a copy of a store with other commit log files."""
    shutil.copytree(store, home)
    for name, data in files.items():
        (home / "commitlog" / name).write_bytes(data)
    return home


def content(path: Path, *, ordered: bool = True) -> dict[int, bytes]:
    """Return the bodies of a store by physical offset. No checksum covers the rest of a message."""
    table = lw.read(path, mode="DROPMALFORMED", columns=["physical_offset", "body"])
    bodies = dict(zip(table["physical_offset"].to_pylist(), table["body"].to_pylist(), strict=True))
    assert len(bodies) == table.num_rows
    assert not ordered or list(bodies) == sorted(bodies)
    return bodies


def check_repair(store: Path, damaged: Path, out: Path) -> list[int]:
    """Repair a store. Check that each message is where it was, and that the queues lead to it. Return the physical offsets."""
    lw.repair(damaged, out)
    kept, before = content(out), content(store)
    assert kept == {offset: before[offset] for offset in kept}
    assert {path.stat().st_size for path in logs(out)} == {SIZE}
    for path in (store / "consumequeue").rglob("0" * 15 + "*"):
        assert path.read_bytes() == (out / path.relative_to(store)).read_bytes()
    report = lw.verify(out, as_system="5.5.0")
    assert report.ok, report.text()
    assert report.system is not None
    assert (report.system["opens"], report.system["rows_lost"]) == (True, 0)
    return list(kept)


@given(st.data())
@settings(phases=[Phase.reuse, Phase.generate])  # shrinking takes minutes
def test_insertions_and_losses_cost_only_the_messages_that_they_touch(
    store: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    file = data.draw(st.sampled_from(logs(store)[:-1]))
    base, stored = int(file.name), messages(file)
    new = bytearray(file.read_bytes())
    places = st.integers(0, stored[-1][0]) | st.sampled_from([place for place, _ in stored])
    for at in sorted(data.draw(st.lists(places, min_size=1, max_size=3, unique=True)), reverse=True):
        length = data.draw(st.integers(1, 300))
        if data.draw(st.booleans()):
            new[at:at] = data.draw(st.binary(min_size=length, max_size=length))
        else:
            del new[at : at + length]
    home = tmp_path_factory.mktemp("changed")
    damaged = changed(store, home / "store", {file.name: bytes(new)})
    moved = [bytes(new).find(message) - place if message in new else None for place, message in stored]
    # A single message may be displaced, or have a wrong physical offset. Two in a row prove each other.
    sure = {
        base + place for i, (place, _) in enumerate(stored)
        if moved[i] == 0 or (moved[i] is not None and moved[i] in (*moved[max(i - 1, 0) : i], *moved[i + 1 : i + 2]))
    }  # fmt: skip
    # A message whose end was lost may look undamaged: no checksum covers the bytes of the next one that are its properties now.
    torn = [bytes(new).find(message[:BODY]) for _, message in stored if message not in new]
    torn = [(at, at + int.from_bytes(new[at : at + 4], "big")) for at in torn if at >= 0]
    sure -= {
        base + place
        for place, message in stored
        if any(start < bytes(new).find(message) < stop for start, stop in torn)
    }
    rows, read = content(store), content(damaged)
    assert read == {offset: rows[offset] for offset in read}
    assert set(read) >= {offset for offset in rows if not base <= offset < base + SIZE} | sure
    assert set(check_repair(store, damaged, home / "out")) >= set(read)
    shutil.rmtree(home)


OTHER_WAYS = ("-100", "1000", "-1000", "5000", "cut up")


def shifted(store: Path, change: int) -> dict[str, bytes]:
    """Return the files of a log into which bytes were inserted, or from which they were lost, before it was cut into files of one size."""
    names = [path.name for path in logs(store)]
    log, at = b"".join(path.read_bytes() for path in logs(store)), 1000
    log = (
        log[:at] + b"\xff" * change + log[at:]
        if change > 0
        else log[:at] + log[at - change :] + bytes(-change)
    )
    names += [f"{n * SIZE:020d}" for n in range(len(names), -(-len(log) // SIZE))]
    return {name: log[i * SIZE :][:SIZE].ljust(SIZE, b"\0") for i, name in enumerate(names)}


def cut_up(store: Path) -> dict[str, bytes]:
    name, data = logs(store)[0].name, logs(store)[0].read_bytes()
    return {name: data[:2000], f"{2000:020d}": data[2000:]}


def swapped(store: Path) -> dict[str, bytes]:
    first, second = logs(store)[1:3]
    return {first.name: second.read_bytes(), second.name: first.read_bytes()}


@pytest.mark.alike
@pytest.mark.parametrize("change", [100, -100, 1000, -1000, 5000, -5000])
def test_messages_displaced_into_another_file_or_split_by_its_end_are_moved_back(
    store: Path, tmp_path: Path, change: int
) -> None:
    files = shifted(store, change)
    damaged, log = changed(store, tmp_path / "store", files), b"".join(files.values())
    left = {
        int(path.name) + place for path in logs(store) for place, message in messages(path) if message in log
    }
    assert set(check_repair(store, damaged, tmp_path / "out")) == left


@pytest.mark.alike
@pytest.mark.parametrize(
    "way", ["100", "-5000", "swapped", *(pytest.param(way, marks=pytest.mark.extended) for way in OTHER_WAYS)]
)
def test_salvage_serves_messages_of_another_file_and_split_ones_once(
    store: Path, tmp_path: Path, way: str
) -> None:
    files = {"cut up": cut_up, "swapped": swapped}.get(way, lambda store: shifted(store, int(way)))(store)
    damaged = changed(store, tmp_path / "store", files)
    lw.repair(damaged, tmp_path / "out")
    kept = lw.read(tmp_path / "out").to_pylist()
    for mode in ("DROPMALFORMED", "PERMISSIVE"):
        table = lw.read(damaged, mode=mode)
        rows = [row for row in table.select(list(kept[0])).to_pylist() if row["topic"] is not None]
        assert rows == kept, mode
    assert lw.read(damaged, mode="DROPMALFORMED", jobs=2).to_pylist() == kept
    low, high = kept[5]["physical_offset"], kept[-5]["physical_offset"]
    part = lw.read(
        damaged, mode="DROPMALFORMED", filter=f"physical_offset >= {low} and physical_offset < {high}"
    )
    assert part.num_rows == len(kept) - 10
    assert lw.read(damaged, mode="DROPMALFORMED", limit=7).num_rows == 7
    with pytest.raises(lw.LogwrightError):
        lw.read(damaged)


def test_split_message_is_reported_with_both_places(store: Path, tmp_path: Path) -> None:
    damaged = changed(store, tmp_path / "store", shifted(store, 100))
    last, message = messages(logs(store)[0])[-1]
    at = last + 100
    text = f"the message of physical offset {last} begins here and ends in commitlog/{SIZE:020d} ({at + len(message) - SIZE} bytes)"
    faults = {(name, fault.offset, fault.length): fault.detail for name, fault in lw.verify(damaged).faults}
    assert text in faults[f"commitlog/{0:020d}", at, SIZE - at]
    stream = lw.scan(damaged, mode="PERMISSIVE")
    corrupt = [
        row["_corrupt_offset"] for row in stream.to_reader().read_all().to_pylist() if row["topic"] is None
    ]
    assert at not in corrupt
    assert any(text in fault.detail for _, fault in stream.report.faults)


def test_verify_does_not_miss_messages_that_are_in_another_file(store: Path, tmp_path: Path) -> None:
    report = lw.verify(changed(store, tmp_path / "store", swapped(store)))
    second = messages(logs(store)[2])
    text = f"{len(second)} messages of commitlog/{2 * SIZE:020d} from physical offset {2 * SIZE} on"
    assert any(text in fault.detail for _, fault in report.faults)
    assert not any(fault.lost for _, fault in report.faults)


def test_joined_files_are_divided_again(store: Path, tmp_path: Path) -> None:
    first, second = logs(store)[:2]
    damaged = changed(store, tmp_path / "store", {first.name: first.read_bytes() + second.read_bytes()})
    (damaged / "commitlog" / second.name).unlink()
    assert check_repair(store, damaged, tmp_path / "out") == offsets(store)
    assert [path.read_bytes() for path in logs(tmp_path / "out")] == [
        path.read_bytes() for path in logs(store)
    ]


def test_wrong_file_size_is_an_error_of_the_user(store: Path, tmp_path: Path) -> None:
    with pytest.raises(lw.UsageError, match="cross the end of a file of 2048 bytes") as error:
        lw.repair(store, tmp_path / "out", mappedFileSizeCommitLog=2048)
    assert "mappedFileSizeCommitLog" in str(error.value)


@given(st.randoms(use_true_random=False))
@settings(phases=[Phase.reuse, Phase.generate], max_examples=examples(15))
def test_pieces_of_a_log_in_any_order_give_no_message_twice_and_no_other(
    store: Path, tmp_path_factory: pytest.TempPathFactory, chance: random.Random
) -> None:
    log = b"".join(path.read_bytes() for path in logs(store))
    cuts = sorted(chance.sample(range(1, len(log)), chance.randrange(1, 6)))
    pieces = [log[a:b] for a, b in zip([0, *cuts], [*cuts, len(log)], strict=True)]
    pieces = (
        [chance.choice(pieces) for _ in pieces]
        if chance.random() < 0.3
        else chance.sample(pieces, len(pieces))
    )
    new = b"".join(pieces)[: len(log)].ljust(len(log), b"\0")
    home = tmp_path_factory.mktemp("pieces")
    damaged = changed(
        store, home / "store", {path.name: new[int(path.name) :][:SIZE] for path in logs(store)}
    )
    read, before = content(damaged, ordered=False), content(store)
    assert read == {offset: before[offset] for offset in read}
    lw.repair(damaged, home / "out")
    kept = content(home / "out")
    assert kept == {offset: before[offset] for offset in kept}
    assert set(kept) >= set(read)
    assert lw.verify(home / "out").ok
    shutil.rmtree(home)


@pytest.mark.alike
@pytest.mark.parametrize("way", ["between two others", "last", "exchanged"])
def test_single_displaced_message_is_moved_back_if_its_queue_lists_it(
    store: Path, tmp_path: Path, way: str
) -> None:
    file = logs(store)[1]
    data, stored = file.read_bytes(), messages(file)
    a, b, c, last = (stored[n][0] for n in (5, 6, 7, -1))
    changed_data, displaced, lost = {
        "between two others": (data[:a] + b"abc" + data[a:b] + data[b + 3 :], a, {b}),
        "last": (data[:last] + b"abc" + data[last:-3], last, set()),
        "exchanged": (data[:a] + data[b:c] + data[a:b] + data[c:], a, set()),
    }[way]
    damaged = changed(store, tmp_path / "store", {file.name: changed_data})
    kept = check_repair(store, damaged, tmp_path / "out")
    assert set(offsets(store)) - set(kept) == {int(file.name) + place for place in lost}
    shutil.rmtree(damaged / "consumequeue")
    lw.repair(damaged, tmp_path / "unproved")
    assert int(file.name) + displaced not in offsets(tmp_path / "unproved")


def test_single_message_after_the_end_of_the_log_is_moved_back_if_its_queue_lists_it(
    tmp_path: Path,
) -> None:
    """Where the last file and another one were exchanged, the log seems to end before its message."""
    rows = [
        {"topic": "A", "store_timestamp_ms": TIME + n, "body": b"x" * 900} for n in range(13)
    ]  # four in a file
    lw.write(rows, tmp_path / "store", "rocketmq.store", **OPTIONS)
    first, *_, last = logs(tmp_path / "store")
    files = {first.name: last.read_bytes(), last.name: first.read_bytes()}
    lw.repair(changed(tmp_path / "store", tmp_path / "damaged", files), tmp_path / "out")
    assert offsets(tmp_path / "out") == offsets(tmp_path / "store")


def test_swapped_messages_are_moved_back_if_their_batch_queue_lists_them(tmp_path: Path) -> None:
    options = {**OPTIONS, "mapperFileSizeBatchConsumeQueue": 460}
    rows = [{"topic": "A", "store_timestamp_ms": TIME + n, "body": b"x" * n} for n in range(20)]
    lw.write(rows, tmp_path / "store", "rocketmq.store", batch_topics="A", **options)
    (file,) = logs(tmp_path / "store")
    data = file.read_bytes()
    (start, first), (_, second) = messages(file)[7:9]
    stop = start + len(first) + len(second)
    damaged = data[:start] + second + first + data[stop:]
    home = changed(tmp_path / "store", tmp_path / "home", {file.name: damaged})
    lw.repair(home, tmp_path / "out", **options)
    assert logs(tmp_path / "out")[0].read_bytes() == data
    assert lw.verify(tmp_path / "out", **options).ok


@pytest.mark.parametrize("copied", [2, 7])
def test_copy_of_a_message_that_its_queue_lists_is_not_kept_twice(
    store: Path, tmp_path: Path, copied: int
) -> None:
    """A stale copy claims the place of a message that was read before, and a copy of a later one must not hide what is between."""
    file = logs(store)[1]
    stored = messages(file)
    copy = stored[copied][1]
    target = next(n for n in range(4, len(stored)) if n != copied and len(stored[n][1]) >= len(copy))
    place, _ = stored[target]
    data = bytearray(file.read_bytes())
    data[place : place + len(copy)] = copy
    damaged = changed(store, tmp_path / "store", {file.name: bytes(data)})
    kept = check_repair(store, damaged, tmp_path / "out")
    assert kept == [offset for offset in offsets(store) if offset != int(file.name) + place]


def test_messages_lost_before_a_blank_record_are_replaced_by_placeholders(
    store: Path, tmp_path: Path
) -> None:
    """The blank record is displaced, although it ends where the shorter file ends."""
    file = logs(store)[0]
    data, stored = file.read_bytes(), messages(file)
    first, (last, message) = stored[-2][0], stored[-1]
    damaged = changed(store, tmp_path / "store", {file.name: data[:first] + data[last + len(message) :]})
    kept = check_repair(store, damaged, tmp_path / "out")
    assert set(offsets(store)) - set(kept) == {first, last}


def test_swapped_files_are_put_in_order(store: Path, tmp_path: Path) -> None:
    damaged = changed(store, tmp_path / "store", swapped(store))
    assert check_repair(store, damaged, tmp_path / "out") == offsets(store)


def test_wrong_queue_offset_is_corrected_although_files_were_swapped(store: Path, tmp_path: Path) -> None:
    """Its neighbours in the queue may be in the swapped files."""
    first, second, third = (path.read_bytes() for path in logs(store)[:3])
    names = [path.name for path in logs(store)]
    at = messages(logs(store)[0])[2][0] + MESSAGE.offset("queue_offset")
    wrong = first[:at] + (7).to_bytes(8, "big") + first[at + 8 :]
    damaged = changed(store, tmp_path / "store", {names[0]: wrong, names[1]: third, names[2]: second})
    lw.repair(damaged, tmp_path / "repaired", **OPTIONS)
    for path in logs(store):
        assert (tmp_path / "repaired" / "commitlog" / path.name).read_bytes() == path.read_bytes()
    assert lw.verify(tmp_path / "repaired", **OPTIONS).ok


def test_copy_of_another_file_gives_no_message_twice(store: Path, tmp_path: Path) -> None:
    first, second = logs(store)[1:3]
    damaged = changed(store, tmp_path / "store", {second.name: first.read_bytes()})
    expected = [offset for offset in offsets(store) if offset // SIZE != int(second.name) // SIZE]
    assert offsets(damaged) == expected
    lw.repair(damaged, tmp_path / "out")
    assert list(content(tmp_path / "out")) == expected


def message(at: int, body: bytes, queue_offset: int = 0) -> bytes:
    return MESSAGE.pack(
        {
            "magic_code": V1, "body_crc": body_crc(body), "queue_offset": queue_offset, "physical_offset": at, "body_length": len(body),
            "body": body, "topic": b"t",
        }
    )  # fmt: skip


def log_of(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / f"{0:020d}"
    path.write_bytes(data)
    return path


def test_messages_in_the_body_of_a_damaged_message_are_not_rows(tmp_path: Path) -> None:
    """A body may hold messages of another log, whose offsets are consistent."""
    small = len(message(0, b"x"))
    first = message(0, b"first")
    inner = b"".join(message(1 << 20 | n * small, b"x") for n in range(5))
    outer = message(len(first), inner)
    after = message(len(first) + len(outer), b"after")
    broken = bytearray(outer)
    broken[4] ^= 0xFF  # the magic
    path = log_of(tmp_path, first + bytes(broken) + after)
    assert lw.read(path, mode="DROPMALFORMED")["body"].to_pylist() == [b"first", b"after"]


def test_message_with_a_wrong_physical_offset_is_not_displaced(tmp_path: Path) -> None:
    small = len(message(0, b"x"))
    parts = [message(n * small, b"x") for n in range(4)]
    for wrong in (1, 2, 3):
        data = b"".join([*parts[:wrong], message(wrong * small + 256, b"x"), *parts[wrong + 1 :]])
        assert offsets(log_of(tmp_path, data)) == [n * small for n in range(4) if n != wrong]


def test_displacement_is_reported_with_the_number_of_bytes(store: Path, tmp_path: Path) -> None:
    file = logs(store)[1]
    (place, _), data = messages(file)[5], file.read_bytes()
    damaged = changed(store, tmp_path / "store", {file.name: data[:place] + b"abc" + data[place:-3]})
    report = lw.verify(damaged)
    assert f"at {place}, 3 bytes" in report.text()
    assert (
        "from here on physical_offset is 3 less than the position: bytes before it were inserted"
        in " ".join(report.text().split())
    )
    with pytest.raises(lw.LogwrightError, match="magic_code"):
        lw.read(damaged)


def test_parts_of_a_file_with_displaced_messages_give_the_same_rows(store: Path) -> None:
    file = logs(store)[0]
    (place, _), data = messages(file)[5], file.read_bytes()
    for changed_data in (data[:place] + b"abc" + data[place:], data[:place] + data[place + 500 :]):
        verdict = laws.any_split(
            changed_data, "rocketmq.commitlog", sizes=range(1, 4200, 150), name=file.name
        )
        assert verdict, str(verdict)


def test_copies_before_a_displaced_message_prove_it_in_any_window(store: Path) -> None:
    """The last message is displaced by a copy of all before it, whose claims are below its own."""
    file = logs(store)[0]
    place, last = messages(file)[-1]
    copied = 2 * file.read_bytes()[:place] + last + bytes(SIZE)
    specimen = Specimen.of(copied, "rocketmq.commitlog", file.name)
    counts = [specimen.read(window=window).table.num_rows for window in (1 << 20, 4096)]
    assert counts == 2 * [len(messages(file))]


def test_displaced_messages_that_prove_nothing_take_linear_time(tmp_path: Path) -> None:
    """Each message is undamaged and claims another place than its neighbours need."""

    def seconds(count: int) -> float:
        small = len(message(0, b"x"))
        data = b"".join(message(small * (n + count if n % 3 else n // 2), b"x") for n in range(count))
        path = log_of(tmp_path, data)
        start = time.process_time()
        lw.read(path, mode="DROPMALFORMED")
        return time.process_time() - start

    seconds(1000)
    assert seconds(8000) < 0.5 + 8 * seconds(2000)


def displaced_log(way: str, count: int) -> tuple[bytes, dict[int, int]]:
    """Return a log in which almost each message is displaced by another number of bytes, and the sizes of all by physical offset."""
    chance = random.Random(count)
    log, at = [], 0
    for _ in range(count):
        log.append(message(at, chance.randbytes(chance.randrange(60))))
        at += len(log[-1])
    starts = accumulate((len(part) for part in log), initial=0)
    sizes = dict(zip(starts, map(len, log), strict=False))
    if way in ("doubled", "tripled"):
        log = [part for part in log for _ in range(2 if way == "doubled" else 3)]
    elif way == "reversed":
        log.reverse()
    else:
        chance.shuffle(log)
    return b"".join(log), sizes


def work_of_a_walk(data: bytes, listed: dict[int, int], patch: pytest.MonkeyPatch) -> tuple[int, set[int]]:
    """Return the number of bytes that are read, searched and scanned in a walk over a log, and the physical offsets found."""
    work = 0

    class CountedFile(MemoryFile):
        def pread(self, offset: int, length: int) -> Bytes:
            nonlocal work
            part = super().pread(offset, length)
            work += len(part)
            return part

    def counted(compute: Callable[..., Any], bytes_of: Callable[[Any, Any, int], int]) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **options: Any) -> Any:
            nonlocal work
            before = getattr(self, "at", 0)
            result = compute(self, *args, **options)
            work += bytes_of((self, *args), result, before)
            return result

        return call

    def collected(args: Any, result: Any, before: int) -> int:
        (candidates,) = args
        return (len(candidates.window.data) if candidates.at < 0 else candidates.at) - before

    offsets: set[int] = set()
    with patch.context() as patched:
        patched.setattr(Finder, "next", counted(Finder.next, lambda args, result, _: result[0] - args[2]))
        patched.setattr(
            Scanner, "frames", counted(Scanner.frames, lambda args, result, _: result.stop - args[2])
        )
        patched.setattr(Candidates, "collect", counted(Candidates.collect, collected))
        context = CODEC.context("0" * 20, Options(CODEC.options), claims=(0, 1 << 62), listed=listed)
        for _, frames in good_frames(Walk(CountedFile(np.frombuffer(data, np.uint8)), CODEC, context)):
            offsets.update(frames.header["physical_offset"].tolist())
    return work, offsets


@pytest.mark.alike
@pytest.mark.parametrize("way", ["doubled", "tripled", "reversed", "shuffled"])
def test_search_for_displaced_messages_is_linear(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message is displaced by another number of bytes, so that after each one the next is searched for."""
    work = {}
    for count in (300, 1200):
        data, sizes = displaced_log(way, count)
        listed = {} if way in ("doubled", "tripled") else sizes
        total, offsets = work_of_a_walk(data, listed, monkeypatch)
        work[count] = total / len(data)
        assert offsets == set(sizes)
    assert work[1200] < 1.3 * work[300]


def test_nested_messages_that_are_not_displaced_end_the_scans_of_displaced_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each displaced message has one in its body that is at its physical offset, so the search reaches a run of messages many times."""

    def work(count: int) -> float:
        size = 2 * len(message(0, b""))
        inner = [n * size + BODY for n in range(count)]
        data = b"".join(message(at - BODY + (1 << 30), message(at, b"")) for at in inner)
        total, offsets = work_of_a_walk(data, {}, monkeypatch)
        assert offsets == set(inner)
        return total / len(data)

    assert work(1200) < 1.3 * work(300)


def test_messages_that_are_found_in_any_order_take_little_more_than_linear_time() -> None:
    reads = 0

    class CountedRun(Run):
        def __getattribute__(self, name: str) -> Any:
            nonlocal reads
            reads += name == "start"
            return super().__getattribute__(name)

    def count(number: int) -> int:
        nonlocal reads
        file, places = LogFile("", 0, 0), list(range(0, 10 * number, 10))
        random.Random(number).shuffle(places)
        reads = 0
        for place in places:
            assert file.lacks(np.array([place]), np.array([place + 10]), 1 << 30).all()
            file.insert([CountedRun(place, place + 10, 1, place + 10, place, 0, "", 0)])
        reads_so_far = reads
        assert [run.start for run in file.runs] == sorted(places)
        return reads_so_far

    count(100)
    assert count(2000) < 6 * count(500)
