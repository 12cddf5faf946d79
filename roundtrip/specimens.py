"""Small files of every format, made by our own codecs, for the trust harness and the fuzzer.

With one line in `logwright.roundtrip.<system>.specimens`, a new codec or layout is damaged, truncated, fuzzed, and written
through failures and crashes like all others.
"""

from __future__ import annotations

from logwright.codec import registry
from logwright.codec.fault import UsageError
from logwright.roundtrip.sample import DirectorySample, Sample

_MODULES = tuple(registry.modules(str(__package__), "specimens"))
SAMPLES: tuple[Sample, ...] = tuple(sample for module in _MODULES for sample in module.SAMPLES)
PRIMARY_SAMPLES: tuple[Sample, ...] = tuple(
    sample for module in _MODULES for sample in module.PRIMARY_SAMPLES
)
"""Files with several frames, of the kinds that hold the rows of a store."""
DIRECTORY_SAMPLES: tuple[DirectorySample, ...] = tuple(
    sample for module in _MODULES for sample in module.DIRECTORY_SAMPLES
)


def samples(codec: str | None = None) -> list[Sample]:
    """Return all samples, or those of one codec. Raises `UsageError` for a codec without a sample."""
    chosen = [sample for sample in SAMPLES if codec in (None, sample.codec)]
    if not chosen:
        registry.get(str(codec))  # raises for an unknown codec
        raise UsageError(f"{codec} has no sample", advice="Add one in logwright.roundtrip.<system>.specimens")
    return chosen
