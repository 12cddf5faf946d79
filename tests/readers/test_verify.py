"""`verify` on files and directories of a fake system: what is read, what the layout is asked, and the verdict."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from fake_store import FRAMES_CODEC, FakeStore, ToyNote, frame, know

import logwright as lw
from logwright.cli import group
from logwright.codec.capability import CheckSettings, DirectoryCapabilities
from logwright.codec.engine.startup import Answers, LostRows, Refused, Served, Settings, Startup
from logwright.codec.fault import AccessError, Fault, Kind, Severity, UnsupportedError
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, Plan, PlannedFile
from logwright.codec.store.overlay import Overlay
from logwright.codec.store.view import Part
from logwright.codec.window import Frames, Window
from logwright.readers import listing


class Counting:
    """A checker that records its input."""

    def __init__(self, clean: bool | None, live: bool | None) -> None:
        self.clean, self.live = clean, live
        self.fed: dict[str, int] = {}

    def begin(self, file: PlannedFile) -> None:
        self.file = file.name

    def add(self, window: Window, frames: Frames) -> None:
        self.fed[self.file] = self.fed.get(self.file, 0) + len(frames)

    def finish(self) -> Iterator[tuple[str, Fault]]:
        text = f"fed {self.fed}, clean {self.clean}, live {self.live}"
        yield "", Fault("toy.store", 0, 0, Kind.ORDER, text, Severity.INFO)


class ServedStore(Served):
    """A store that is served with this verdict."""

    def __init__(self, verdict: Mapping[str, Any]) -> None:
        self.verdict = verdict

    def answers(self) -> Answers:
        return Answers(None, self.verdict.get("serves", {}), self.verdict.get("error"))

    def lost(self) -> Sequence[LostRows] | None:
        rows, ranges = self.verdict.get("rows_lost"), self.verdict.get("lost", ())
        if rows is None and not ranges:
            return None
        return [LostRows(rows, where) for where in ranges or [{}] * (rows or 0)]

    def parts(self, view: str) -> Sequence[Part]:
        return ()


class Watched(FakeStore):
    """A store whose system is simulated: it stops at the first damage."""

    nouns = ("text", "box")
    advice = ("ask for another copy",)
    asked: list[tuple[str | None, bool | None]]
    clean: bool | None
    verdict: Mapping[str, Any]

    def __init__(self, **verdict: Any) -> None:
        self.asked, self.verdict = [], verdict
        self.capabilities = DirectoryCapabilities(
            predict=Startup("toys", ("2", "1"), self.start, self.last_stop), check=self.checker
        )

    def checker(self, listing: Listing, plan: Plan, options: Options, settings: CheckSettings) -> Counting:
        return Counting(settings.clean, settings.live)

    def discards(self, name: str) -> bool:
        return name.startswith("gone")

    def last_stop(self, listing: Listing, asked: bool | None) -> tuple[bool, str]:
        self.clean = asked
        return bool(asked), "asked"

    def start(self, overlay: Overlay, settings: Settings) -> Served | Refused:
        self.asked.append((settings.version if settings.version_given else None, self.clean))
        if self.verdict.get("error_class") == "raise":
            raise UnsupportedError("an old one")
        if not self.verdict.get("opens", True):
            return Refused(self.verdict["scope"], None, None)
        return ServedStore(self.verdict)


def use(monkeypatch: pytest.MonkeyPatch, layout: FakeStore) -> None:
    known = ({"toy.frames": FRAMES_CODEC, "toy.note": ToyNote()}, {"toy.store": layout})
    know(monkeypatch, *known)
    monkeypatch.setattr(listing, "_staging_names", lambda: frozenset({layout.inner_staging}))


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    layout = Watched()
    use(monkeypatch, layout)
    return layout


def write_store(place: Path, *files: bytes) -> Path:
    place.mkdir(parents=True)
    for i, data in enumerate(files):
        (place / f"{10 * i:03}.toy").write_bytes(data)
    (place / "NOTE").write_bytes(b"note:x")
    return place


SOUND = frame(0, b"a") + frame(1, b"b"), frame(10, b"c")
DAMAGED = frame(0, b"a") + b"?" * 30 + frame(2, b"b"), frame(10, b"c")


# One directory


def test_files_are_compared_with_each_other(watched: Watched, tmp_path: Path) -> None:
    report = lw.verify(write_store(tmp_path / "s", *DAMAGED), clean=True)
    details = [fault.detail for name, fault in report.faults if not name]
    assert details == ["fed {'000.toy': 2, '010.toy': 1}, clean True, live False"]
    assert (report.rows, report.ok) == (3, False)


def test_verdict_of_the_system_is_reported_for_damage(watched: Watched, tmp_path: Path) -> None:
    report = lw.verify(write_store(tmp_path / "s", *DAMAGED))
    assert watched.asked == [(None, None)]
    assert report["system"]["version"] == "2"
    assert "toys 2, after an unclean stop: opens it and loses nothing more" in report.text()
    assert "ask for another copy" in report.text()
    assert "3 texts" not in report.text()
    assert lw.verify(write_store(tmp_path / "t", *SOUND)).system is None
    assert len(watched.asked) == 1


def test_running_system_gets_no_verdict(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logwright.readers.resolve._live", lambda path, layout: True)
    place = write_store(tmp_path / "s", *DAMAGED)
    assert lw.verify(place).system is None
    assert lw.verify(place, as_system=True)["system"]["opens"] is True


def test_verdict_can_be_requested(watched: Watched, tmp_path: Path) -> None:
    place = write_store(tmp_path / "s", *SOUND)
    report = lw.verify(place, as_system="1", clean=True)
    assert watched.asked == [("1", True)]
    assert (report["system"]["version"], report["system"]["clean"]) == ("1", True)
    assert report.safe
    assert "toys 1, after a clean stop: opens it and loses nothing" in report.text()
    assert lw.verify(place, as_system=False).system is None
    with pytest.raises(lw.UsageError, match="unknown version '3'") as caught:
        lw.verify(place, as_system="3")
    assert "Valid values: 2, 1" in str(caught.value)
    with pytest.raises(lw.UsageError, match="this is a file"):
        lw.verify(place / "000.toy", as_system=True)


def test_verdict_of_an_unknown_system_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use(monkeypatch, FakeStore())
    with pytest.raises(lw.UsageError, match=r"cannot be simulated on a toy\.store"):
        lw.verify(write_store(tmp_path / "s", *SOUND), as_system=True)


def test_unavailable_verdict_is_a_note_unless_requested(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, Watched(error_class="raise"))
    place = write_store(tmp_path / "s", *DAMAGED)
    report = lw.verify(place)
    assert report.system is None
    assert "cannot simulate the start of the system: an old one" in report.text()
    with pytest.raises(lw.UnsupportedError) as caught:
        lw.verify(place, as_system=True)
    assert caught.value.path == str(place)


@pytest.mark.parametrize(
    ("verdict", "files", "safe"),
    [
        ({}, SOUND, True),
        ({"opens": False, "scope": "process"}, SOUND, False),
        ({"rows_lost": 0}, SOUND, True),
        ({"rows_lost": 1}, SOUND, False),
        ({"lost": ({"first_id": 1},)}, SOUND, False),
        ({"serves": {"stops_at": 3}}, SOUND, False),
        ({"error": "some of it can't be read"}, SOUND, False),
        ({}, DAMAGED, False),
    ],
)
def test_safe_if_the_system_starts_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    verdict: dict[str, Any],
    files: tuple[bytes, ...],
    safe: bool,
) -> None:
    use(monkeypatch, Watched(**verdict))
    place = write_store(tmp_path / "s", *files)
    assert lw.verify(place, as_system=True).safe is safe
    assert status("verify", "--as-system", str(place)) == (0 if safe else 3)


def test_files_beside_directories_do_not_prevent_a_verdict(watched: Watched, tmp_path: Path) -> None:
    """A log directory: partitions and their checkpoints."""
    for name in "ab":
        write_store(tmp_path / name, *SOUND)
    (tmp_path / "NOTE").write_bytes(b"note:x")
    report = lw.verify(tmp_path, as_system=True)
    assert [(part.codec, part.system is not None) for part in report.parts] == [
        ("toy.store", True),
        ("toy.store", True),
        ("toy.note", False),
    ]
    assert report.safe
    assert "toys 2: opens both and loses nothing" in report.text()
    assert status("verify", "--as-system", str(tmp_path)) == 0
    (tmp_path / "NOTE").write_bytes(b"?")
    report = lw.verify(tmp_path, as_system=True)
    assert not report.safe
    assert "loses nothing" not in report.text()
    with pytest.raises(lw.UsageError, match="this is a file"):
        lw.verify([tmp_path / "NOTE", tmp_path / "NOTE"], as_system=True)


def test_next_command_names_accepted_paths(watched: Watched, tmp_path: Path) -> None:
    """`repair` would refuse one directory inside another, or the directories of a glob."""
    place = write_store(tmp_path / "above" / "s", *DAMAGED)
    for path in (place, tmp_path / "above", tmp_path / "a*" / "s"):
        report = lw.verify(path)
        assert report.path == str(place)


def test_damage_of_derived_files_does_not_prevent_a_start(watched: Watched, tmp_path: Path) -> None:
    place = write_store(tmp_path / "s", *SOUND)
    (place / "NOTE").write_bytes(b"?")
    report = lw.verify(place, as_system=True)
    assert not report.ok
    assert report.safe


def status(*args: str) -> int:
    result = group.main(args=list(args), prog_name="logwright", standalone_mode=False)
    assert isinstance(result, int)
    return result


def test_exit_status_is_three_for_damage(
    watched: Watched, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sound, damaged = write_store(tmp_path / "s", *SOUND), write_store(tmp_path / "d", *DAMAGED)
    assert status("verify", str(sound)) == 0
    assert status("verify", str(damaged)) == 3
    assert status("verify", str(sound), "--as-system", "1", "--clean") == 0
    assert watched.asked[-1] == ("1", True)
    assert status("verify", "--as-system", str(sound), "--unclean") == 0
    assert watched.asked[-1] == (None, False)
    assert status("verify", "--as-system=2", str(sound), str(damaged)) == 3
    assert "toys 2" in capsys.readouterr().out


def test_unknown_level_is_refused_with_suggestions() -> None:
    with pytest.raises(lw.UsageError, match="unknown depth 'record'") as caught:
        lw.verify(".", depth="record")
    assert "Did you mean 'records'?" in str(caught.value)
    with pytest.raises(lw.UsageError, match="Valid values: structure, checksums, records"):
        lw.verify(".", depth="zzz")


# Unreadable input


def test_unsupported_data_is_unchecked(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = FRAMES_CODEC.scan

    def old(window: Window, at: int, context: Any, *, check: bool = True) -> Frames:
        if window.data[at : at + 3].tobytes() == b"OLD":
            raise UnsupportedError("an old box", offset=window.offset + at)
        return scan(window, at, context, check=check)

    monkeypatch.setattr(FRAMES_CODEC, "scan", old)
    place = write_store(tmp_path / "s", b"OLD one", *SOUND)
    report = lw.verify(place)
    assert report.ok
    assert report.unchecked
    ((name, fault),) = [finding for finding in report.faults if finding[1].severity is Severity.WARNING]
    assert (name, fault.offset, fault.length) == ("000.toy", 0, 7)
    assert "not checked from here on: an old box" in fault.detail
    assert report.rows == 3
    assert status("verify", str(place)) == 1
    with pytest.raises(lw.UnsupportedError):
        lw.verify(place / "000.toy")
    both = lw.verify([place / "000.toy", place / "010.toy"])
    assert both.unchecked
    assert both.ok


def test_inaccessible_file_does_not_hide_the_others(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = listing.LocalDirectory.open

    def forbidden(self: listing.LocalDirectory, name: str) -> Any:
        if name == "000.toy":
            raise AccessError("may not be read", path=name)
        if name == "NOTE":
            raise lw.NotFoundError("is gone", path=name)
        return real(self, name)

    monkeypatch.setattr(listing.LocalDirectory, "open", forbidden)
    place = write_store(tmp_path / "s", *SOUND)
    report = lw.verify(place)
    faults = {name: (fault.severity, fault.detail) for name, fault in report.faults if name}
    assert faults == {
        "000.toy": (Severity.ERROR, "cannot be read: may not be read"),
        "NOTE": (Severity.ERROR, "cannot be read: is gone"),
    }
    assert report.rows == 1
    monkeypatch.setattr("logwright.readers.resolve._live", lambda path, layout: True)
    assert dict(lw.verify(place).faults)["NOTE"].severity is Severity.INFO


def test_denied_access_is_no_damage(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not checked (status 1), and no repair is suggested."""
    real = listing.LocalDirectory.open

    def forbidden(self: listing.LocalDirectory, name: str) -> Any:
        if name == "000.toy":
            raise AccessError("permission denied", path=name)
        return real(self, name)

    monkeypatch.setattr(listing.LocalDirectory, "open", forbidden)
    place = write_store(tmp_path / "s", *SOUND)
    assert not lw.verify(place).ok
    assert run("verify", str(place)) == 1
    text = capsys.readouterr().out
    assert text.startswith(f"{place}  NOT CHECKED  000.toy  ")
    assert text.endswith(f"  logwright verify {place}   as a user who may read the files\n")


def test_edit_of_files_that_may_not_be_read_is_denied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lw.write([{"value": "a"}], tmp_path / "a-0", "kafka.partition")
    real = listing.LocalDirectory.open

    def forbidden(self: listing.LocalDirectory, name: str) -> Any:
        if name.endswith(".index"):
            raise AccessError("permission denied", path=name)
        return real(self, name)

    monkeypatch.setattr(listing.LocalDirectory, "open", forbidden)
    with pytest.raises(AccessError, match="permission denied"):
        lw.edit(tmp_path / "a-0", tmp_path / "out", drop="offset == 0")
    assert not (tmp_path / "out").exists()


# Several paths


def test_parent_directory_stands_for_all_its_stores(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_store(tmp_path / "all" / "one", *SOUND)
    write_store(tmp_path / "all" / "two", *DAMAGED)
    write_store(tmp_path / "all" / "gone.1", *DAMAGED)
    (tmp_path / "all" / "other").mkdir()
    (tmp_path / "all" / "NOTE").write_bytes(b"note:y")
    (tmp_path / "all" / "readme").write_bytes(b"?")
    real = listing._scan

    def closed(path: str, shown: str) -> Any:
        if path.endswith("other"):
            raise AccessError("may not be listed", path=path)
        return real(path, shown)

    monkeypatch.setattr(listing, "_scan", closed)
    report = lw.verify(tmp_path / "all")
    above = str(tmp_path / "all")
    names = ("one", "two", "NOTE", "other")
    assert [part.path for part in report.parts] == [f"{above}/{name}" for name in names]
    assert not report.ok
    assert report.rows == 7
    assert {file["path"] for file in report["files"]} >= {f"{above}/two/000.toy", f"{above}/NOTE"}
    assert [target.get("system") is not None for target in report["targets"]] == [False, True, False, False]
    assert len(report.notes) == 2
    assert report.notes[-1] == "skipped files outside the stores: readme"
    text = " ".join(report.text().split())
    assert "gone.1 is marked for deletion by the system: skipped" in text
    assert "1 of 4 damaged, 1 not checked" in text
    assert "other NOT CHECKED may not be listed" in text
    assert next(line for line in report.text().splitlines()[2:] if "DAMAGED" in line).startswith("  two")


def test_path_that_cannot_be_opened_does_not_keep_others_from_being_checked(
    watched: Watched, tmp_path: Path
) -> None:
    """Nothing is known to be wrong with it, so the status is 1 (could not be checked) unless another one is damaged."""
    write_store(tmp_path / "one", *SOUND)
    (tmp_path / "other").write_bytes(b"?" * 50)
    report = lw.verify([tmp_path / "gone", tmp_path / "one", tmp_path / "other", f"{tmp_path}/none*"])
    assert [part.path for part in report.parts] == [
        f"{tmp_path}/{name}" for name in ("one", "none*", "gone", "other")
    ]
    assert (report.ok, report.denied, report.parts[0].ok) == (False, True, True)
    text = " ".join(report.text().split())
    assert "1 checked, 3 not checked" in text
    assert "unrecognised file format (50 bytes)" in text
    with pytest.raises(lw.NotFoundError):
        lw.verify([tmp_path / "gone", f"{tmp_path}/none*"])


def test_path_that_cannot_be_opened_is_no_fault_and_is_reported_once(
    watched: Watched, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = write_store(tmp_path / "one", *SOUND)
    assert run("verify", str(store), str(tmp_path / "gone")) == 1
    captured = capsys.readouterr()
    assert "NOT CHECKED 1 checked, 1 not checked, 66 bytes" in " ".join(captured.out.split())
    assert "fault" not in captured.out
    assert " ".join((captured.out + captured.err).split()).count("no such file or directory") == 1
    assert captured.out.endswith(f"  logwright dump {store} --limit 10\n")
    assert run("verify", str(store), str(tmp_path / "gone"), "--json") == 1
    encoded = json.loads(capsys.readouterr().out)
    assert (encoded["ok"], encoded["faults_total"]) == (False, lw.verify(store).faults_total)
    assert not any("gone" in file["path"] for file in encoded["files"])
    assert [target.get("error") for target in encoded["targets"]] == [
        None,
        f"no such file or directory. Did you mean {store}?",
    ]


def test_files_that_may_not_be_read_are_counted_apart_from_faults(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(self: listing.LocalDirectory, name: str) -> Any:
        raise AccessError("permission denied", path=name)

    monkeypatch.setattr(listing.LocalDirectory, "open", forbidden)
    report = lw.verify(write_store(tmp_path / "s", *SOUND))
    assert report.fault_counts() == ["3 files not read"]
    assert repr(report) == f"<Report {tmp_path}/s: not checked, 3 files not read>"


def test_directory_of_stores_means_all_of_them(watched: Watched, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_store(tmp_path / "all" / name, *SOUND)
    (tmp_path / "all" / "NOTE").write_bytes(b"note:y")
    (tmp_path / "all" / "other").mkdir()
    scan = lw.scan(tmp_path / "all")
    rows = scan.to_table().num_rows
    assert scan.report.notes == ["skipped folders without a store: other"]
    assert rows == lw.read([tmp_path / "all" / "one", tmp_path / "all" / "two"]).num_rows > 0
    assert lw.verify(tmp_path / "all").rows == rows + 1, "the note too"
    (tmp_path / "empty" / "x").mkdir(parents=True)
    for use in (lw.read, lw.verify):
        with pytest.raises(lw.UsageError, match="unrecognised"):
            use(tmp_path / "empty")


def test_codec_may_name_the_layout_of_a_directory_of_stores(watched: Watched, tmp_path: Path) -> None:
    write_store(tmp_path / "all" / "one", *SOUND)
    (tmp_path / "all" / "NOTE").write_bytes(b"note:y")
    report = lw.verify(tmp_path / "all", "toy.store")
    assert report.codec == "toy.store"
    assert report.rows == 3


def test_failing_store_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use(monkeypatch, Watched(error_class="raise"))
    both = [write_store(tmp_path / "s", *SOUND), write_store(tmp_path / "t", *DAMAGED)]
    report = lw.verify(both, as_system=True)
    assert [part.unchecked for part in report.parts] == [True, True]
    assert not report.safe


def test_lists_and_globs_verify_each_store(watched: Watched, tmp_path: Path) -> None:
    write_store(tmp_path / "s1", *SOUND)
    write_store(tmp_path / "s2", *DAMAGED)
    report = lw.verify(f"{tmp_path}/s*")
    assert [part.ok for part in report.parts] == [True, False]
    same = lw.verify([tmp_path / "s1", tmp_path / "s2"])
    assert same["files"] == report["files"]


def test_progress_of_verify_ends_at_the_size_of_the_files(watched: Watched, tmp_path: Path) -> None:
    shown: list[tuple[int, int]] = []
    place = write_store(tmp_path / "s", *SOUND)
    size = sum(path.stat().st_size for path in place.iterdir())
    lw.verify(place, show=lambda done, total: shown.append((done, total)))
    assert shown[-1] == (size, size)
    shown.clear()
    lw.verify(place / "000.toy", show=lambda done, total: shown.append((done, total)))
    assert shown[-1][0] == shown[-1][1] == (place / "000.toy").stat().st_size
