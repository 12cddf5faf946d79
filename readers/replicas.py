"""Replicas: several copies of one store, whose rows must not be read twice by accident."""

from __future__ import annotations

from collections.abc import Sequence

from logwright.codec.fault import UsageError
from logwright.codec.option import Options
from logwright.readers.target import REPLICA_OPTIONS, DirectoryTarget, Target
from logwright.readers.task import known_options


def choose_replicas(targets: Sequence[Target]) -> list[Target]:
    """Return the targets with one replica of each store, as option `replicas` chooses.

    Raises `UsageError` if there are replicas and the option is not set, and for different stores of one name.
    """
    if len(targets) < 2:
        return list(targets)
    choice = Options(REPLICA_OPTIONS, known_options(targets[0].options, REPLICA_OPTIONS))["replicas"]
    left: list[DirectoryTarget] = []
    for name, copies in copies_of(targets):
        if len(copies) > 1 and choice is None:
            raise UsageError(
                f"{name} is found {len(copies)} times: {_listed(copies)}",
                advice="Set replicas=first or replicas=longest to read one of them, or pass only one. "
                "`repair` of all of them takes each frame from an undamaged replica",
            )
        left.append(copies[0] if len(copies) == 1 or choice == "first" else max(copies, key=_reaches))
    chosen = {id(target) for target in left}
    return [target for target in targets if not isinstance(target, DirectoryTarget) or id(target) in chosen]


def copies_of(targets: Sequence[Target]) -> list[tuple[str, list[DirectoryTarget]]]:
    """Group the directories among the targets by the store that they hold, in the given order; the name is "" if unknown.

    Raises `UsageError` for different stores of one name, whose rows could not be distinguished.
    """
    named: dict[tuple[str, str], list[DirectoryTarget]] = {}
    ids: dict[tuple[str, str], dict[str, str]] = {}
    out: list[tuple[str, list[DirectoryTarget]]] = []
    for target in targets:
        if not isinstance(target, DirectoryTarget):
            continue
        layout, replicas = target.layout, target.layout.capabilities.replicas
        copy = None if replicas is None else replicas.copy_of(target.directory, target.plan)
        if copy is None:
            out.append(("", [target]))
            continue
        name, id_ = copy
        key = (layout.name, name)
        if key not in named:
            named[key] = []
            out.append((name, named[key]))
        named[key].append(target)
        if id_ is not None:
            ids.setdefault(key, {}).setdefault(id_, target.path)
    for (_, name), seen in ids.items():
        if len(seen) > 1:
            listed = ", ".join(f"{path} ({id_})" for id_, path in list(seen.items())[:4])
            raise UsageError(
                f"these directories are called {name}, but their ids differ, so they are not replicas: {listed}",
                advice="Read them one by one",
            )
    return out


def _listed(copies: Sequence[DirectoryTarget]) -> str:
    return ", ".join(replica.path for replica in copies[:4]) + (", ..." if len(copies) > 4 else "")


def _reaches(target: DirectoryTarget) -> int:
    replicas = target.layout.capabilities.replicas
    assert replicas is not None
    return replicas.reaches(target.directory, target.plan)
