"""Run the command line in this process."""

from __future__ import annotations

import pytest

from logwright.cli import main


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)
