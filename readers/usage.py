"""Refuse options that would have no effect.

An option is declared in a list of a codec or layout, with the verbs, views and strategies that use it (`codec.option.Option`). Anything
else would ignore it, and an ignored filter returns rows that should have been excluded.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from logwright.codec import registry
from logwright.codec.base import Codec
from logwright.codec.fault import UsageError
from logwright.codec.layout import Layout
from logwright.codec.option import Option, Options, Verb, fold
from logwright.readers.rescue import OPTIONS as RESCUE_OPTIONS
from logwright.readers.traceback import short_traceback

_RESCUE = frozenset(fold(option.name) for option in RESCUE_OPTIONS)
_READS = frozenset(Verb) - {Verb.WRITE, Verb.FOLLOW, Verb.COMPACT}
_REPAIRS = frozenset({Verb.REPAIR, Verb.REBUILD})


def declarations(owner: Codec | Layout) -> Iterator[tuple[Option, frozenset[Verb]]]:
    """Iterate over all options of a codec or layout, with the verbs that use them. An option may occur several times."""
    lists: list[tuple[tuple[Option, ...], frozenset[Verb]]] = []
    able = owner.capabilities
    if isinstance(owner, Layout):
        repair, follow = owner.capabilities.repair, owner.capabilities.follow
        lists += [(owner.options, frozenset({Verb.WRITE})), (owner.read_options, _READS)]
        lists += [] if repair is None else [(repair.options, _REPAIRS)]
        compact = owner.capabilities.compact
        lists += [] if compact is None else [(compact.options, frozenset({Verb.COMPACT}))]
        lists += [] if follow is None else [(follow.options, frozenset({Verb.FOLLOW}))]
    else:
        lists.append((owner.options, _READS | {Verb.WRITE}))
    lists += [] if able.edit is None else [(able.edit.options, frozenset({Verb.EDIT}))]
    for options, verbs in lists:
        for option in options:
            yield option, option.verbs & verbs or verbs


def takes(owner: Codec | Layout, name: str, verb: Verb, view: str | None = None) -> bool:
    """Return whether a codec or layout uses an option in a verb, and in a view of it if given."""
    folded = fold(name)
    return any(
        fold(option.name) == folded
        and verb in verbs
        and (view is None or not option.views or view in option.views)
        for option, verbs in declarations(owner)
    )


def uses(target: Any, name: str, verb: Verb) -> bool:
    """Return whether a verb uses an option with a target."""
    if fold(name) in _RESCUE:
        return getattr(target, "source", None) is None
    if hasattr(target, "codec"):
        return takes(target.codec, name, verb)
    if takes(target.layout, name, verb):
        return True
    if verb in (Verb.REPAIR, Verb.REBUILD, Verb.EDIT, Verb.COMPACT, Verb.INSPECT):
        return False
    codecs = {file.codec for file in target.plan.files}
    if verb in (Verb.READ, Verb.AS_SYSTEM):
        codecs |= {view.codec for view in target.layout.views.values()}
    return any(takes(registry.get(codec), name, verb) for codec in codecs if codec is not None)


def check_file(target: Any, table: str) -> None:
    """Raise `UsageError` for an option that reading a table of a single file does not use."""
    for name in target.passed_options:
        used = target.source is None if fold(name) in _RESCUE else takes(target.codec, name, Verb.READ, table)
        if not used:
            raise refused(name, target, f"view {table}")


def check_view(target: Any, view: str, verb: Verb, read: Collection[tuple[str, str, bool]]) -> None:
    """Raise `UsageError` for an option that reading a view of a directory does not use. `read`: codec and table of each file that is read,
    and whether its rows are those of the view, unchanged."""
    layout = target.layout
    for name in target.passed_options:
        if fold(name) in _RESCUE:
            continue
        if getattr(target.directory, "lone", False) and _in(name, layout.root_options):
            raise refused(name, target, "a single file")
        if fold(name) == "replicas" and layout.capabilities.replicas is not None and view != "files":
            continue
        if takes(layout, name, verb, view):
            continue
        if not any(_decodes(name, verb, *entry) for entry in read):
            use = f"view {view}" + ("" if verb is Verb.READ else " with mode=AS_SYSTEM")
            raise refused(name, target, use)


def view_uses(target: Any, name: str, view: str | None, verb: Verb) -> bool:
    """Return whether reading a view of a target, None for its default, may use an option that some view of it uses."""
    if fold(name) in _RESCUE or hasattr(target, "codec"):
        return fold(name) in _RESCUE or takes(target.codec, name, verb, view or "rows")
    layout = target.layout
    view = view or layout.default_view
    spec = layout.views.get(view, layout.views[layout.default_view])
    tables = dict.fromkeys(file.codec for file in target.plan.files if file.codec and view in layout.views)
    tables[spec.codec] = spec.table if view in layout.views else view
    decodes = any(takes(registry.get(codec), name, verb, table) for codec, table in tables.items())
    return fold(name) == "replicas" or takes(layout, name, verb, view) or (decodes and view != "files")


def _decodes(name: str, verb: Verb, codec: str, table: str, plain: bool) -> bool:
    # Rows that are combined first are not those of the view, so only options that apply to the file itself count.
    of_rows = any(fold(option.name) == fold(name) and option.views for option in registry.get(codec).options)
    return (plain or not of_rows) and takes(registry.get(codec), name, verb, table)


def _in(name: str, names: Collection[str]) -> bool:
    return fold(name) in map(fold, names)


def check_strategy(options: Sequence[Option], names: Collection[str], strategy: str) -> None:
    """Raise `UsageError` for an option that a strategy of `repair` does not use."""
    for option in options:
        if option.strategies and strategy not in option.strategies and _in(option.name, names):
            advice = f"It works with strategy {' or '.join(option.strategies)}. Omit it"
            raise UsageError(f"option {option.name} has no effect with strategy {strategy}", advice=advice)


def refused(name: str, target: Any, use: str) -> UsageError:
    """Return the error for an option that would be ignored in a `use`, with a list of what would use it."""
    own: Codec | Layout = target.codec if hasattr(target, "codec") else target.layout
    spelled = next((option.name for option in every_option(own) if fold(option.name) == fold(name)), name)
    text = f"option {spelled} does not apply to {use} of {own.name}"
    return UsageError(text, path=target.path, advice=_works(spelled, own))


def _of_system(own: Codec | Layout) -> list[Codec | Layout]:
    """Return the codecs and layouts of the same system, `own` first."""
    system = f"{own.name.partition('.')[0]}."
    everything: tuple[Codec | Layout, ...] = (*registry.layouts(), *registry.codecs())
    return [own, *(other for other in everything if other.name.startswith(system) and other is not own)]


def every_option(own: Codec | Layout) -> Iterator[Option]:
    """Iterate over all options of codecs and layouts of the same system."""
    for owner in _of_system(own):
        yield from (option for option, _ in declarations(owner))
        yield from _moving(owner)


def _moving(owner: Codec | Layout) -> Sequence[Option]:
    """Return the options that `convert` uses between two directories of a layout."""
    edit = owner.capabilities.edit if isinstance(owner, Layout) else None
    return () if edit is None else edit.move_options


def _works(name: str, own: Codec | Layout) -> str:
    """Describe where an option works: its own codec or layout first, then others of the same system."""
    if fold(name) == "replicas":
        return "It chooses between replicas of a partition. Omit it"
    places = []
    for owner in _of_system(own):
        verbs: dict[Verb, set[str]] = {}
        for option, used in declarations(owner):
            for verb in used if fold(option.name) == fold(name) else ():
                verbs.setdefault(verb, set()).update(option.views)
        if verbs:
            words = {verb: str(verb) for verb in Verb if verb in verbs}
            for verb in verbs.keys() & {Verb.READ, Verb.AS_SYSTEM}:
                words[verb] += f" (view {', '.join(sorted(verbs[verb]))})" if verbs[verb] else ""
            places.append(f"{owner.name}: {', '.join(words.values())}")
        if any(fold(option.name) == fold(name) for option in _moving(owner)):
            places.append(f"convert from one {owner.name} to another")
    return f"Omit it. It applies to {'; '.join(places)}" if places else "Omit it"


def check_write(owner: Codec | Layout, path: str, options: Mapping[str, Any]) -> None:
    """Raise `UsageError` for an option that writing a file or directory does not use."""
    known = {fold(option.name): option.name for option in every_option(owner)} if options else {}
    for name, value in options.items():
        if fold(name) in known and value is not None and not takes(owner, name, Verb.WRITE):
            text = f"option {known[fold(name)]} does not apply to writing {owner.name}"
            raise UsageError(text, path=path, advice=_works(name, owner))
    Options([option for option, verbs in declarations(owner) if Verb.WRITE in verbs], options)


def check_clean(targets: Sequence[Any]) -> None:
    """Raise `UsageError` if the kind of the last stop makes no difference to any target."""
    for target in targets:
        layout = getattr(target, "layout", None)
        predict = None if layout is None else layout.capabilities.predict
        if predict is not None and predict.last_stop is not None:
            return
    name = targets[0].codec.name if hasattr(targets[0], "codec") else targets[0].layout.name
    reason = (
        "it is a single file"
        if hasattr(targets[0], "codec")
        else "its system starts the same way after any stop"
    )
    raise UsageError(
        f"option clean has no effect on {name}: {reason}",
        path=targets[0].path,
        advice="It works with systems that check how they were stopped, such as kafka.partition. Omit it",
    )


def check_jobs(targets: Sequence[Any], jobs: int) -> None:
    """Raise `UsageError` if several processes cannot share the work."""
    for target in targets:
        if jobs > 1 and getattr(target, "source", None) is not None:
            text = f"option jobs is {jobs}, but only one process can read standard input"
            raise UsageError(text, path=target.path, advice="Omit jobs, or pass a file")


Function = TypeVar("Function", bound=Callable[..., Any])


def suggest_parameters(function: Function) -> Function:
    """Decorate a function of the public API. Its own parameters may be spelled as options may (`maxFaults`), an error about an unknown option
    names a parameter if that is nearest, and the traceback of a user error has no frames of this package (`short_traceback`)."""
    own = {fold(name): name for name in inspect.signature(function).parameters}

    @short_traceback
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **{own.get(fold(name), name): value for name, value in kwargs.items()})
        except UsageError as error:
            unknown = error.unknown
            if unknown is not None and unknown in kwargs:
                near = difflib.get_close_matches(unknown.lower(), [*own.values(), *error.known], n=1)
                if near and near[0] in own.values():
                    error.advice = f"Did you mean {near[0]!r}?"
            raise

    return cast(Function, call)
