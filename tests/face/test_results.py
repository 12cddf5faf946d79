"""Results of the functions are plain values: they can be pickled and copied, and are exported."""

from __future__ import annotations

import copy
import pickle
import typing
from pathlib import Path

import pytest

import logwright as lw
from logwright import api
from logwright.codec import registry


@pytest.mark.parametrize(
    "layout", [layout.name for layout in registry.layouts() if layout.name != "kafka.logdir"]
)
def test_reports_of_damage_can_be_pickled_and_copied(layout: str, tmp_path: Path) -> None:
    original = tmp_path / "orders-0"
    lw.generate(layout, original, rows=20, seed=1)
    for file in sorted(original.rglob("*")):
        if file.is_file() and file.stat().st_size > 8:
            with file.open("r+b") as stream:
                stream.seek(min(file.stat().st_size // 2, 600))
                stream.write(b"damaged")
    report = lw.verify(original)
    assert not report.ok
    for twin in (pickle.loads(pickle.dumps(report)), copy.deepcopy(report)):
        assert twin.to_dict() == report.to_dict()
        assert twin.text() == report.text()


def test_types_of_results_are_exported() -> None:
    for name in ("edit", "explain", "generate", "rebuild", "repair", "verify", "write"):
        result = typing.get_type_hints(
            getattr(api, name), vars(lw) | vars(api) | {each: getattr(lw, each) for each in lw.__all__}
        )["return"]
        assert getattr(lw, result.__name__) is result
