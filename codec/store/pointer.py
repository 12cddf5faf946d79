"""Recognise the pointer files that Git LFS and git-annex leave in place of files that were not fetched."""

from __future__ import annotations

import re

LARGEST = 1024
"""The maximum size of a pointer file."""
_LFS = re.compile(rb"version https://(git-lfs\.github\.com|hawser\.github\.com)/spec/")
_ANNEX = re.compile(rb"(\.\./)*(\.git)?/?annex/objects/\S")


def pointer_of(head: bytes) -> tuple[str, str] | None:
    """Return the kind of a pointer file that starts with `head`, and the command that fetches the content; None for other files."""
    if _LFS.match(head):
        return "a Git LFS pointer", "git lfs pull"
    if _ANNEX.match(head):
        return "a git-annex pointer", "git annex get"
    return None
