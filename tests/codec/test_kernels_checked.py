"""Kernels bounds-checked: see `modes`."""

from __future__ import annotations

import pytest
from modes import run_marked


# Property tests among them take their number of examples from the profile.
@pytest.mark.hypothesis
def test_kernels_pass_their_tests_bounds_checked() -> None:
    run_marked("checked")
