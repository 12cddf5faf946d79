"""Mode AS_SYSTEM, if the broker does not serve all sound rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka_golden import CASES

import logwright as lw
from logwright.cli import group


def test_rows_that_the_broker_does_not_serve_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows that it truncates or that its consumers do not get: a warning in Python, exit status 3 on the command line."""
    place = CASES["dmg_flip_two"].partition
    with pytest.warns(lw.DamageWarning, match="loses 68 records"):
        assert lw.read(place, mode="AS_SYSTEM").num_rows == 24
    for case, status in (("dmg_flip_two", 3), ("dmg_fix_codec5", 3), ("dmg_torn_append", 0), ("dmg_base", 0)):
        for verb in ("dump", "convert"):
            out = str(tmp_path / f"{case}-{verb}.parquet")
            words = [verb, str(CASES[case].partition), *(["-o"] if verb == "dump" else []), out]
            done = group.main(args=[*words, "--mode", "AS_SYSTEM"], standalone_mode=False)
            assert done == status, words
            output = capsys.readouterr().err
            assert ("INCOMPLETE" in output) is (status == 3), output
            assert ("--as-system   for details" in output) is (status == 3), output
