"""The same thing found twice, in copies: rows of it would be read twice, which nobody wants without having said so."""

from __future__ import annotations

from collections.abc import Sequence

from logwright.codec.fault import UsageError
from logwright.codec.option import Options
from logwright.readers.resolve import COPIES_OPTIONS, DirectoryTarget, Target
from logwright.readers.task import known_options


def one_of_each(targets: Sequence[Target]) -> list[Target]:
    """The targets, of those that are copies of one thing only the one that option `replicas` chooses.

    Raises `UsageError` where there are copies and nothing was chosen, and for different things of one name.
    """
    if len(targets) < 2:
        return list(targets)
    how = Options(COPIES_OPTIONS, known_options(targets[0].options, COPIES_OPTIONS))["replicas"]
    left: list[DirectoryTarget] = []
    for name, copies in copies_of(targets):
        if len(copies) > 1 and how is None:
            raise UsageError(
                f"{name} is found {len(copies)} times: {_listed(copies)}",
                advice="Say replicas=first or replicas=longest to read one of them, or name one. "
                "`repair` with all of them takes each frame from whichever copy is sound",
            )
        left.append(copies[0] if len(copies) == 1 or how == "first" else max(copies, key=_reaches))
    chosen = {id(one) for one in left}
    return [one for one in targets if not isinstance(one, DirectoryTarget) or id(one) in chosen]


def copies_of(targets: Sequence[Target]) -> list[tuple[str, list[DirectoryTarget]]]:
    """The directories among the targets, copies of one thing together, each in the order given, by name ("" where not known).

    Raises `UsageError` for different things of one name, the rows of which nobody could tell apart.
    """
    named: dict[tuple[str, str], list[DirectoryTarget]] = {}
    ids: dict[tuple[str, str], dict[str, str]] = {}
    out: list[tuple[str, list[DirectoryTarget]]] = []
    for target in targets:
        if not isinstance(target, DirectoryTarget):
            continue
        layout, replicas = target.layout, target.layout.capabilities.replicas
        found = None if replicas is None else replicas.copy_of(target.directory, target.plan)
        if found is None:
            out.append(("", [target]))
            continue
        name, id_ = found
        key = (layout.name, name)
        if key not in named:
            named[key] = []
            out.append((name, named[key]))
        named[key].append(target)
        if id_ is not None:
            ids.setdefault(key, {}).setdefault(id_, target.path)
    for (_, name), seen in ids.items():
        if len(seen) > 1:
            told = ", ".join(f"{path} ({id_})" for id_, path in list(seen.items())[:4])
            raise UsageError(
                f"these are called {name}, but are no copies of each other, since their ids are not the same: {told}",
                advice="Read them one by one",
            )
    return out


def _listed(copies: Sequence[DirectoryTarget]) -> str:
    return ", ".join(one.path for one in copies[:4]) + (", ..." if len(copies) > 4 else "")


def _reaches(target: DirectoryTarget) -> int:
    replicas = target.layout.capabilities.replicas
    assert replicas is not None
    return replicas.reaches(target.directory, target.plan)
