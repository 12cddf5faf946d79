"""Golden cases with the answers of real ZooKeeper servers, and simulated starts on directories in memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from memory_directory import MemoryDirectory

from logwright.codec.engine.startup import Started
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, Plan
from logwright.codec.zookeeper.startup.settings import OPTIONS
from logwright.codec.zookeeper.startup.start import STARTUP, ServedTree
from logwright.readers import listing as listings

GOLDEN = Path(__file__).resolve().parents[2] / "corpora/golden/zookeeper"
DATA_LOG_DIR = "dataLogDir"
_STATS = ("czxid", "mzxid", "version", "cversion", "aversion", "pzxid")
COLUMNS = (
    "path", "data", "acl", "czxid", "mzxid", "ctime_ms", "mtime_ms", "version", "cversion", "aversion", "ephemeral_owner",
    "data_length", "num_children", "pzxid",
)  # fmt: skip
_LARGE = 1500
"""The golden cases record larger data by hash."""


@dataclass(frozen=True)
class RecordedStart:
    """A start of a real server: its version and properties, and the result."""

    case: str
    number: int
    """Index in `other_runs`; -1 for the first run."""
    startup: Mapping[str, Any]
    nodes: tuple[Mapping[str, Any], ...] | None
    """The nodes that its clients see; None if not recorded."""
    failing: tuple[str, ...] = ()
    """Unreadable paths."""

    @property
    def version(self) -> str:
        return str(self.startup["server"])

    @property
    def options(self) -> dict[str, Any]:
        """The settings as options of ours. All starts had extended types on unless their properties say otherwise."""
        translated: dict[str, Any] = {"extendedTypesEnabled": True}
        for name, value in self.startup["jvm_props"].items():
            short = name.removeprefix("zookeeper.")
            if short.startswith("authProvider"):
                continue
            translated[short] = value if value is not None else False
        return translated

    @property
    def error(self) -> tuple[str, str]:
        """Class and message of the exception that ended it."""
        exception = next(
            line.rpartition(" | ")[2]
            for line in reversed(self.startup["log"])
            if " | java." in line and ("abnormally" in line or "Not able to find" in line)
        )
        kind, _, message = exception.partition(": ")
        return kind, message

    @property
    def files(self) -> dict[str, int]:
        after = self.startup.get("files_after_start") or self.startup["files_after_failed_start"]
        return {name: size for name, size in after.items() if name.startswith(("version-2/", "data"))}


def recorded_starts() -> list[RecordedStart]:
    """Return all recorded starts of real servers."""
    starts = []
    for folder in sorted(case_file.parent for case_file in GOLDEN.glob("*/case.json")):
        startup, nodes, failing = _truth(folder / "truth.jsonl")
        assert startup is not None
        starts.append(RecordedStart(folder.name, -1, startup, nodes, failing))
        for i, run in enumerate(json.loads((folder / "case.json").read_text()).get("other_runs", [])):
            if run.get("tree_file"):
                starts.append(RecordedStart(folder.name, i, run, *_truth(folder / run["tree_file"])[1:]))
            else:
                starts.append(
                    RecordedStart(folder.name, i, run, nodes if run["same_tree_as_truth"] else None, failing)
                )
    return starts


def _truth(
    path: Path,
) -> tuple[Mapping[str, Any] | None, tuple[Mapping[str, Any], ...], tuple[str, ...]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    startup = next((line for line in lines if line["kind"] == "startup"), None)
    nodes = tuple(line for line in lines if line["kind"] == "node")
    return startup, nodes, tuple(line["path"] for line in lines if line["kind"] == "node_error")


def restores() -> Iterator[tuple[str, Mapping[str, Any], list[Mapping[str, Any]], list[Mapping[str, Any]]]]:
    """Yield, for each case, the result of the loading code alone, its ACL table, and the raw stats."""
    for path in sorted(GOLDEN.glob("*/restore.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        (result,) = [line for line in lines if line["kind"] == "restore"]
        kinds = ([line for line in lines if line["kind"] == kind] for kind in ("acl_cache", "persisted"))
        yield path.parent.name, result, *kinds  # type: ignore[misc]


def listing_of(case: str) -> Listing:
    """Return the directory of a golden case as a layout sees it."""
    folder = GOLDEN / case
    if (folder / "datalog").is_dir():
        own = {path.name: path.read_bytes() for path in (folder / "data/version-2").iterdir()}
        logs = {
            f"{DATA_LOG_DIR}/{path.name}": path.read_bytes()
            for path in (folder / "datalog/version-2").iterdir()
        }
        return data_directory(own | logs)
    return listings.open_listing(str(folder / "version-2"))


def start(listing: Listing, *, version: str | None = None, **options: Any) -> Started:
    return STARTUP.run(listing, Plan(()), Options(OPTIONS, options), version=version, clean=None)


def server(started: Started) -> ServedTree:
    """Return the state of a started server."""
    assert isinstance(started.served, ServedTree)
    return started.served


def recorded_node(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a tree as the golden cases record it."""
    data = node["data"]
    recorded: dict[str, Any] = {"kind": "node", "path": node["path"]}
    if data is not None and len(data) > _LARGE:
        recorded |= {"data_sha256": hashlib.sha256(data).hexdigest(), "data_len": len(data)}
    else:
        recorded["data_hex"] = None if data is None else data.hex()
    recorded["acl"] = node["acl"]
    stat = {name: node[name] for name in _STATS}
    stat |= {"ctime": node["ctime_ms"], "mtime": node["mtime_ms"]}
    stat["ephemeralOwner"] = f"{node['ephemeral_owner'] & (1 << 64) - 1:#x}"
    stat |= {"dataLength": node["data_length"], "numChildren": node["num_children"]}
    return recorded | {"stat": stat}


def nodes_of(started: Started) -> list[dict[str, Any]]:
    """Return the nodes that clients see, as the golden cases record them."""
    batches = list(started.rows("tree", COLUMNS))
    return [recorded_node(row) for row in pa.Table.from_batches(batches).to_pylist()]


def data_directory(
    files: Mapping[str, bytes], name: str = "version-2", above: Listing | None = None
) -> MemoryDirectory:
    return MemoryDirectory(files, name, above)


def memory_of(case: str) -> MemoryDirectory:
    """Return a golden case that can be changed."""
    listing = listing_of(case)
    return data_directory({entry.name: listing.read(entry.name) for entry in listing.entries()})
