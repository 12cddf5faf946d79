"""Import contracts that the linter's built-in kinds cannot express without naming each system.

Adding a format is adding a folder and one line in the registry; no contract has to be edited for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from importlinter import Contract, ContractCheck, fields, output


def _inside(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


class _ImportContract(Contract):
    """A contract that checks each import separately."""

    def faults(self, graph: Any) -> Iterator[tuple[str, str, str]]:
        raise NotImplementedError

    def check(self, graph: Any, verbose: bool) -> ContractCheck:
        lines = [
            f"{importer} -> {imported} (line {detail['line_number']}): {why}"
            for importer, imported, why in self.faults(graph)
            for detail in graph.get_import_details(importer=importer, imported=imported)
        ]
        return ContractCheck(kept=not lines, metadata={"lines": sorted(lines)})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["lines"]:
            output.print_error(f"- {line}")


def _imports(graph: Any, keep: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    for importer in sorted(graph.modules):
        if keep(importer):
            for imported in sorted(graph.find_modules_directly_imported_by(importer)):
                yield importer, imported


class HouseContract(_ImportContract):
    """Modules in `root` outside of `rooms` are the public interface, which `rooms` never import."""

    type_name = "house"

    root: Any = fields.StringField()
    rooms: Any = fields.ListField(subfield=fields.StringField())

    def faults(self, graph: Any) -> Iterator[tuple[str, str, str]]:
        def in_a_room(module: str) -> bool:
            return any(_inside(module, room) for room in self.rooms)

        for importer, imported in _imports(graph, in_a_room):
            if _inside(imported, self.root) and not in_a_room(imported):
                yield importer, imported, "only the face may import the face"


class SystemsContract(_ImportContract):
    """Subpackages of `package` are systems: none imports another, and only `registry` knows them.

    `shared` lists those that are for all of them, `blind` further packages that must go through the registry too.
    """

    type_name = "systems"

    package: Any = fields.StringField()
    registry: Any = fields.StringField()
    shared: Any = fields.ListField(subfield=fields.StringField(), required=False, default=[])
    blind: Any = fields.ListField(subfield=fields.StringField(), required=False, default=[])

    def faults(self, graph: Any) -> Iterator[tuple[str, str, str]]:
        folders = graph.find_children(self.package) - set(self.shared)
        systems = [child for child in folders if graph.find_children(child)]

        def system_of(module: str) -> str | None:
            return next((system for system in systems if _inside(module, system)), None)

        bound = (self.package, *self.blind)
        for importer, imported in _imports(graph, lambda m: any(_inside(m, package) for package in bound)):
            ours, theirs = system_of(importer), system_of(imported)
            if theirs and theirs != ours and importer != self.registry:
                yield importer, imported, "one system never imports another" if ours else "ask the registry"
            if ours and imported == self.registry:
                yield importer, imported, "through the registry one system would import another"


class AcyclicContract(Contract):
    """No module imports itself through others. Deferred and type-checking imports count."""

    type_name = "acyclic"

    def check(self, graph: Any, verbose: bool) -> ContractCheck:
        circle = find_circle(
            {module: graph.find_modules_directly_imported_by(module) - {module} for module in graph.modules}
        )
        return ContractCheck(kept=not circle, metadata={"circle": circle})

    def render_broken_contract(self, check: ContractCheck) -> None:
        output.print_error(f"- {' -> '.join(check.metadata['circle'])}")


def find_circle(imports: Mapping[str, Iterable[str]]) -> list[str]:
    """Return a cycle of modules, each importing the next; empty without a cycle."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []
