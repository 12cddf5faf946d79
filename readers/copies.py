"""The same thing found twice, in copies: rows of it would be read twice, which nobody wants without having said so."""

from __future__ import annotations

from collections.abc import Sequence

from logwright.codec.base import Replicates
from logwright.codec.fault import UsageError
from logwright.codec.option import Options
from logwright.readers.resolve import COPIES_OPTIONS, DirectoryTarget, Target
from logwright.readers.task import known_options


def one_of_each(targets: Sequence[Target]) -> list[Target]:
    """The targets, of those that are copies of one thing only the one that option `replicas` chooses.

    Raises `UsageError` where there are copies and nothing was chosen.
    """
    if len(targets) == 1:
        return list(targets)
    how = Options(COPIES_OPTIONS, known_options(targets[0].options, COPIES_OPTIONS))["replicas"]
    left: list[Target] = []
    for copies in copies_of(targets):
        if len(copies) > 1 and how is None:
            named = ", ".join(one.path for one in copies[:4]) + (", ..." if len(copies) > 4 else "")
            name = (_copy_of(copies[0]) or ("",))[0]
            raise UsageError(
                f"{name} is found {len(copies)} times: {named}",
                advice="Say replicas=first or replicas=longest to read one of them, or name one. "
                "`repair` with all of them takes each frame from whichever copy is sound",
            )
        if len(copies) == 1 or how == "first":
            left.append(copies[0])
        else:
            left.append(max(copies, key=_reaches))
    chosen = {id(one) for one in left}
    return [one for one in targets if not isinstance(one, DirectoryTarget) or id(one) in chosen]


def copies_of(targets: Sequence[Target]) -> list[list[DirectoryTarget]]:
    """The directories among the targets, copies of one thing together, each in the order given."""
    named: dict[tuple[str, str], list[tuple[str | None, DirectoryTarget]]] = {}
    out: list[list[DirectoryTarget]] = []
    for target in targets:
        if not isinstance(target, DirectoryTarget):
            continue
        found = _copy_of(target)
        if found is None:
            out.append([target])
            continue
        group = named.setdefault((target.layout.name, found[0]), [])
        group.append((found[1], target))
    for group in named.values():
        out += _apart(group)
    return out


def _copy_of(target: DirectoryTarget) -> tuple[str, str | None] | None:
    layout = target.layout
    return layout.copy_of(target.directory, target.plan) if isinstance(layout, Replicates) else None


def _apart(group: Sequence[tuple[str | None, DirectoryTarget]]) -> list[list[DirectoryTarget]]:
    """Of one name: things that bear different ids are different things, one without an id may be any of them."""
    ids = dict.fromkeys(one for one, _ in group)
    if len(ids) < 2 or None in ids:
        return [[target for _, target in group]]
    return [[target for one, target in group if one == wanted] for wanted in ids]


def _reaches(target: DirectoryTarget) -> int:
    layout = target.layout
    assert isinstance(layout, Replicates)
    return layout.reaches(target.directory, target.plan)
