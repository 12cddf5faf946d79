"""Numbers of Hypothesis examples, scaled by the profile."""

from __future__ import annotations

from hypothesis import settings

FULL = 100
"""Examples of the profiles that are not a sample."""


def examples(number: int) -> int:
    """Return how many examples a test runs that has `number` of them in `make test-all`: at least five, at most `number`.

    `nightly`, which has thousands, keeps `number`: such tests are slow.
    """
    return min(number, max(5, number * settings.default.max_examples // FULL))
