"""The conformance suite: what every codec of the registry keeps, on its samples and on generated rows and files.

A format takes part by being registered with a sample in `roundtrip/<system>/specimens.py`. Nothing here names a format.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from explanations import check_covers_file
from hypothesis import given, settings
from hypothesis import strategies as st

import logwright as lw
from logwright.codec import registry
from logwright.codec.describe import Type
from logwright.codec.fault import DamageError, Kind, LogwrightError, UnsupportedError, UsageError
from logwright.codec.frames.walk import WINDOW
from logwright.readers.stream import Mode
from logwright.roundtrip import corrections, fuzz, laws, registration, strategies, trust
from logwright.roundtrip.compare import tables_differ
from logwright.roundtrip.sample import Sample
from logwright.roundtrip.specimen import HEAD, Specimen, attempt
from logwright.roundtrip.specimens import SAMPLES, samples

CODECS = sorted(codec.name for codec in registry.codecs())
DESCRIBED = sorted(strategies.FILES)
FIRST = {name: samples(name)[0] for name in CODECS}


def _richest(system: str) -> list[str]:
    """Return the two codecs of a system that have the most fields."""
    own = [codec for codec in registry.codecs() if codec.name.startswith(f"{system}.")]
    return [codec.name for codec in sorted(own, key=lambda codec: -len(codec.field_names()))[:2]]


# Where a rule takes long, `make test` tries it with these only, or with a third of them (`alike`).
RICHEST = {name for system in registry.SYSTEMS for name in _richest(system)}


def each_sample(rule: Callable[..., None]) -> Callable[..., None]:
    return pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.label)(rule)


def in_sample(chosen: bool) -> Any:
    """Return the marks of a parameter that `make test` tries if it is chosen, and `make test-all` in any case."""
    return () if chosen else pytest.mark.extended


def _first_samples_of(codecs: Collection[str]) -> pytest.MarkDecorator:
    subset = [
        pytest.param(
            sample, id=sample.label, marks=in_sample(sample.codec in codecs and sample == FIRST[sample.codec])
        )
        for sample in SAMPLES
    ]
    return pytest.mark.parametrize("sample", subset)


first_samples = _first_samples_of(CODECS)
"""Try the rule with one sample of each codec in `make test`, with all samples in `make test-all`."""
samples_of_richest = _first_samples_of(RICHEST)
"""Try the rule with one sample of each of `RICHEST` in `make test`, with all samples in `make test-all`."""


def richest_of(codecs: Iterable[str]) -> pytest.MarkDecorator:
    """Try the rule with those of these codecs that are in `RICHEST` in `make test`, with all of them in `make test-all`."""
    return pytest.mark.parametrize(
        "codec", [pytest.param(name, marks=in_sample(name in RICHEST)) for name in codecs]
    )


def holds(verdict: laws.Verdict) -> None:
    assert verdict, str(verdict)


# Registration


def test_every_codec_is_registered_completely() -> None:
    assert [text for codec in registry.codecs() for text in registration.lacks(codec)] == []
    assert trust.missing() == []


# Samples


@each_sample
def test_decode_and_encode_give_the_same_bytes(sample: Sample) -> None:
    assert sample.specimen().all_bytes() == sample.specimen().all_bytes(), "samples must not be random"
    holds(laws.decode_encode(sample.specimen()))


@each_sample
def test_encode_from_rows_gives_the_same_rows(sample: Sample) -> None:
    holds(laws.encode_without_payloads(sample.specimen()))


@first_samples
def test_every_split_gives_each_row_once(sample: Sample) -> None:
    size = len(sample.specimen().all_bytes())
    holds(laws.any_split(sample.specimen(), sizes=[1, 61, size // 7 + 1, size // 2 + 1, size + 1]))


@first_samples
def test_kernels_equal_the_description(sample: Sample) -> None:
    """With default read options, which the reference implements."""
    holds(laws.kernel_equals_description(sample.specimen().all_bytes(), sample.codec, name=sample.name))


@first_samples
def test_every_mode_and_window_gives_the_same_rows(sample: Sample) -> None:
    specimen = sample.specimen()
    rows = specimen.read(mode=Mode.FAILFAST).table
    assert rows.num_rows == len(sample.rows)
    for mode in Mode:
        for window in (1, 61, WINDOW) if mode is not Mode.AS_SYSTEM else ():
            read = specimen.read(mode=mode, window=window)
            assert not read.report.faults
            assert tables_differ(rows, read.table.select(rows.schema.names)) is None


@pytest.mark.alike
@first_samples
@pytest.mark.parametrize("ending", [b"", b"\x05stray"], ids=["zeros", "zeros_and_other_bytes"])
def test_faults_after_the_last_frame_do_not_depend_on_the_window(sample: Sample, ending: bytes) -> None:
    specimen = sample.specimen()
    longer = specimen.with_bytes(specimen.all_bytes() + bytes(3 * HEAD) + ending)
    faults: list[list[Any]] = []
    for window in (WINDOW, HEAD):
        try:
            reported = longer.read(columns=None, window=window).report.faults
            # Of many wrong entries, each window reports the first ones.
            faults.append([fault for fault in reported if fault.kind not in (Kind.ORDER, Kind.LINK)])
        except LogwrightError as error:
            faults.append([str(error)])
    assert faults[0] == faults[1]


@first_samples
def test_single_column_has_the_same_values(sample: Sample) -> None:
    specimen = sample.specimen()
    for table in specimen.codec.tables:
        complete = specimen.read(table).table
        for name in complete.schema.names:
            assert specimen.read(table, columns=name).table.column(name) == complete.column(name)


@pytest.mark.alike
@samples_of_richest
def test_every_byte_is_explained_once(sample: Sample, tmp_path: Path) -> None:
    path = tmp_path / sample.name
    path.write_bytes(sample.specimen().all_bytes())
    check_covers_file(lw.explain(path, codec=sample.codec), path.read_bytes())
    torn = tmp_path / "torn" / sample.name
    torn.parent.mkdir()
    for cut in range(37, path.stat().st_size, 37):
        torn.write_bytes(path.read_bytes()[:cut])
        detected = registry.detect(sample.name, torn.read_bytes()[:HEAD])
        if detected is not None and detected.name == sample.codec:
            check_covers_file(lw.explain(torn), torn.read_bytes())


@pytest.mark.alike
@samples_of_richest
def test_fields_are_changed_by_name(sample: Sample) -> None:
    """In the first, second and last frame: an unchanged field leaves the frame unchanged, even if lengths and checksums are recomputed;
    a file with a changed field is still read and round-trips."""
    specimen = sample.specimen()
    data, codec = specimen.all_bytes(), specimen.codec
    places = laws.good_frames(specimen, len(data))
    changed = 0
    for start, end in {*places[:2], *places[-1:]} if codec.structures else ():
        frame = data[start:end]
        for name in codec.field_names():
            try:
                assert codec.edit(frame, [name], lambda old, kind: old, reseal=False) == frame
            except UsageError:
                continue  # the field is in another structure, or absent from this frame
            other = codec.edit(frame, [name], another_value, reseal=False)
            changed += other != frame
            versions = [other]
            with contextlib.suppress(UsageError):  # a checksum: to make it right undoes the change
                assert codec.edit(frame, [name], lambda old, kind: old, reseal=True) == frame
                versions.append(codec.edit(frame, [name], another_value, reseal=True))
            for version in versions:
                damaged = specimen.with_bytes(data[:start] + version + data[end:])
                for mode in (Mode.PERMISSIVE, Mode.DROPMALFORMED):
                    assert not isinstance(attempt(damaged, mode), DamageError), name
                if "raw" in codec.tables["frames"].names(detail=True):
                    holds(laws.decode_encode(damaged))
    assert changed or not codec.structures


def another_value(old: bytes, kind: Type) -> bytes:
    return bytes([*old[:-1], old[-1] ^ 1]) if old else old


@pytest.mark.alike
@samples_of_richest
def test_flips_and_truncations_are_reported(sample: Sample) -> None:
    """Nothing is invented, nothing sound is lost, and all damage is reported by offset: see `laws.damage_is_seen`."""
    specimen = sample.specimen()
    size = len(specimen.all_bytes())
    places = range(0, size, size // 24 + 1)
    flips = [(at, at % 8) for at in places]
    holds(laws.damage_is_seen(specimen, cuts=places, flips=flips, guard=trust.in_time))


@pytest.mark.extended
@each_sample
def test_a_flip_or_a_truncation_at_every_byte_is_reported(sample: Sample) -> None:
    """In bounded time and memory. A bit of each byte with an even number is flipped, and the file is truncated at each odd one."""
    figures = trust.damage(sample, step=2)
    size = len(sample.specimen().all_bytes())
    assert figures.flips + figures.cuts == size


@pytest.mark.nightly
@each_sample
def test_every_bit_flip_and_every_truncation_is_reported(sample: Sample) -> None:
    figures = trust.damage(sample, every_bit=True)
    size = len(sample.specimen().all_bytes())
    assert (figures.flips, figures.cuts) == (8 * size, size)


@samples_of_richest
def test_each_field_can_be_set_or_the_message_says_why_not(sample: Sample, tmp_path: Path) -> None:
    source, data = tmp_path / sample.name, sample.specimen().all_bytes()
    source.write_bytes(data)
    codec, changed = registry.get(sample.codec), 0
    choices = itertools.product(codec.field_names(), ("value=1", "text=abc,reseal"), (0, -1))
    for number, (name, value, frame) in enumerate(choices):
        with contextlib.suppress(UsageError):
            lw.damage(
                source, tmp_path / str(number), f"set:frame={frame},field={name},{value}", codec=codec.name
            )
            changed += (tmp_path / str(number) / sample.name).read_bytes() != data
    assert changed or not codec.structures


@first_samples
def test_any_read_call_may_fail(sample: Sample) -> None:
    assert trust.reading(sample).failures >= 12


@pytest.mark.alike
@samples_of_richest
def test_write_survives_any_failure_and_crash(sample: Sample) -> None:
    figures = trust.writing(sample)
    assert figures.failures > 40
    assert figures.crashes > 40


@pytest.mark.alike
@richest_of(CODECS)
@pytest.mark.parametrize("count", [8, pytest.param(80, marks=pytest.mark.extended)])
def test_mutated_samples_are_read_or_refused(codec: str, count: int) -> None:
    assert fuzz.fuzz(codec, count=count, seed=1).mutations == count


# Generated rows, files and bytes


@pytest.mark.alike
@richest_of(CODECS)
@given(data=st.data())
def test_generated_rows_round_trip(codec: str, data: Any) -> None:
    rows = data.draw(strategies.rows(codec))
    options = data.draw(strategies.options(codec))
    holds(laws.encode_decode(rows, codec, name=strategies.name_of(codec), **options))


@pytest.mark.alike
@richest_of(DESCRIBED)
@given(data=st.data())
def test_generated_files_keep_the_laws(codec: str, data: Any) -> None:
    """They round-trip, the kernels equal the description, and any split gives the same rows."""
    file = data.draw(strategies.files(codec))
    for law in (laws.decode_encode, laws.encode_without_payloads, laws.kernel_equals_description):
        holds(law(file, codec, name=strategies.name_of(codec)))
    sizes = data.draw(st.lists(st.integers(1, len(file) + 1), max_size=4))
    holds(laws.any_split(file, codec, sizes=sizes, name=strategies.name_of(codec)))


@pytest.mark.alike
@richest_of(DESCRIBED)
@given(data=st.data())
def test_damaged_generated_files_are_reported(codec: str, data: Any) -> None:
    """No crash in any mode; codecs that keep damaged ranges round-trip the file."""
    file = data.draw(strategies.damaged(codec))
    specimen = Specimen.of(file, codec, strategies.name_of(codec))
    for mode in (Mode.PERMISSIVE, Mode.DROPMALFORMED):
        assert not isinstance(attempt(specimen, mode), LogwrightError)
    strict = attempt(specimen, Mode.FAILFAST)
    assert not isinstance(strict, LogwrightError) or isinstance(strict, DamageError | UnsupportedError)
    if "raw" in specimen.codec.tables["frames"].names(detail=True):
        holds(laws.decode_encode(file, codec, name=strategies.name_of(codec)))


@pytest.mark.alike
@richest_of(DESCRIBED)
@settings(max_examples=examples(10))
@given(data=st.data())
def test_flips_and_truncations_of_generated_files_are_reported(codec: str, data: Any) -> None:
    file = data.draw(strategies.files(codec))
    if not file:
        return
    cuts = data.draw(st.lists(st.integers(0, len(file) - 1), max_size=8))
    flips = data.draw(st.lists(st.tuples(st.integers(0, len(file) - 1), st.integers(0, 7)), max_size=12))
    holds(laws.damage_is_seen(file, codec, name=strategies.name_of(codec), cuts=cuts, flips=flips))


@pytest.mark.alike
@richest_of(CODECS)
@settings(max_examples=examples(30))
@given(data=st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(codec: str, data: bytes) -> None:
    fuzz.fuzz_one(codec, data)


# Flipped bits


@first_samples
@pytest.mark.parametrize("tries", [4, pytest.param(40, marks=pytest.mark.extended)])
def test_corrected_frames_have_their_original_bytes(sample: Sample, tries: int) -> None:
    specimen = sample.specimen()
    if specimen.codec.checksum:
        for kind in corrections.DAMAGE:
            assert not corrections.outcomes(specimen, kind, range(tries))[corrections.Outcome.WRONG], kind


@pytest.mark.nightly
@each_sample
def test_ten_thousand_damaged_files_are_never_corrected_wrongly(sample: Sample) -> None:
    specimen = sample.specimen()
    if specimen.codec.checksum:
        for kind in corrections.DAMAGE:
            assert not corrections.outcomes(specimen, kind, range(10_000))[corrections.Outcome.WRONG], kind
