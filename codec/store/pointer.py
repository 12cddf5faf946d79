"""Pointer files: what Git LFS and git-annex leave in the place of a file whose contents were not fetched."""

from __future__ import annotations

import re

LARGEST = 1024
"""Bytes of a pointer file at most."""
_LFS = re.compile(rb"version https://(git-lfs\.github\.com|hawser\.github\.com)/spec/")
_ANNEX = re.compile(rb"(\.\./)*(\.git)?/?annex/objects/\S")


def pointer_of(head: bytes) -> tuple[str, str] | None:
    """What a file that starts so is a pointer of, and the command that fetches the contents; None for any other file."""
    if _LFS.match(head):
        return "a Git LFS pointer", "git lfs pull"
    if _ANNEX.match(head):
        return "a git-annex pointer", "git annex get"
    return None
