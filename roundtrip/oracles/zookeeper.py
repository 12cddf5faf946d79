"""ZooKeeper as a judge of files: its loading code, a stand-alone server with a client, and its tools, on local paths.

The classes are those in the jars that come with pyspark, of one version (`VERSION`); nothing is fetched. Names are ZooKeeper's. Most of
its settings are read once in the life of a JVM, so there is a JVM for each set of them that is asked for.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from logwright.roundtrip.oracles.java import SHARED, JavaError, OracleError, Project, Session, cache_dir

__all__ = [
    "JavaError",
    "OracleError",
    "available",
    "restore",
    "serve",
    "snapshot_formatter",
    "txn_log_toolkit",
]

_SOURCES = Path(__file__).parent / "java" / "zookeeper"
_NEEDED = (
    *(
        "zookeeper-3",
        "zookeeper-jute",
        "snappy-java",
        "metrics-core",
        "commons-cli",
        "commons-io",
        "slf4j-api",
        "netty-",
    ),
    *("jackson-core-2", "jackson-databind", "jackson-annotations", "audience-annotations"),
)


class Bundled(Project):
    """Sources compiled against the jars of pyspark."""

    def jars(self) -> Path:
        spec = importlib.util.find_spec("pyspark")
        if spec is None or not spec.submodule_search_locations:
            raise OracleError("needs the jars in pyspark, which is not installed")
        folder = Path(spec.submodule_search_locations[0]) / "jars"
        needed = [path for path in sorted(folder.glob("*.jar")) if path.name.startswith(_NEEDED)]
        if not any(path.name.startswith("zookeeper-3") for path in needed):
            raise OracleError(f"there is no ZooKeeper among the jars of pyspark in {folder}")
        # The links are specific to this Python environment.
        place = hashlib.sha256("\n".join(map(str, needed)).encode()).hexdigest()[:16]
        target = cache_dir() / "zookeeper" / place / "jars"
        names = {path.name for path in needed}
        if not target.is_dir() or {path.name for path in target.glob("*.jar")} != names:
            target.mkdir(parents=True, exist_ok=True)
            for path in target.glob("*.jar"):
                path.unlink(missing_ok=True)
            for path in needed:
                (target / path.name).symlink_to(path)
        return target


PROJECT = Bundled(_SOURCES / "Oracle.java", _SOURCES, SHARED)

_FLAGS = (
    "-Xmx1g",
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.preAllocSize=64",
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.skipACL=yes",
)

available = PROJECT.why_not
"""Return why ZooKeeper cannot be used here; None if it can."""


@functools.cache
def _session(properties: tuple[tuple[str, str], ...]) -> Session:
    flags = [f"-D{name}={value}" for name, value in properties]
    return Session(PROJECT, "logwright.oracle.zookeeper.Oracle", *_FLAGS, *flags)


def _ask(properties: Mapping[str, str] | None, op: str, **fields: Any) -> tuple[list[Any], Any]:
    return _session(tuple(sorted((properties or {}).items()))).ask(op, **fields)


def _places(data_dir: str | Path, data_log_dir: str | Path | None) -> dict[str, str]:
    out = {"dataDir": str(Path(data_dir).absolute())}
    return out if data_log_dir is None else {**out, "dataLogDir": str(Path(data_log_dir).absolute())}


def restore(
    data_dir: str | Path,
    data_log_dir: str | Path | None = None,
    *,
    nodes: bool = True,
    properties: Mapping[str, str] | None = None,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the state of a server after loading a data directory: nodes by path, and the rest.

    A node: path, data (hex), acl, persisted (the stat as it is stored), stat (as a client sees it). The rest: returned_zxid,
    last_processed_zxid, node_count, tree_digest, sessions, digest_mismatches (zxids), snapshot_digest_left (zxid of a digest that
    was never reached). Nothing is written but what loading itself deletes. Raises `JavaError` where it throws.
    """
    return _ask(properties, "restore", nodes=nodes, **_places(data_dir, data_log_dir))


def serve(
    data_dir: str | Path,
    data_log_dir: str | Path | None = None,
    *,
    create: tuple[str, ...] = (),
    properties: Mapping[str, str] | None = None,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Start a stand-alone server, read its tree by a client, have that make nodes (`create`), and stop it.

    The nodes that the client saw, and files_after_start, last_processed_zxid, tree_digest (both at the end).
    """
    return _ask(properties, "serve", create=list(create), **_places(data_dir, data_log_dir))


def snapshot_formatter(path: str | Path, *, data: bool = False) -> str:
    """Return the output of `SnapshotFormatter`; `data` adds `-d`."""
    return str(_ask(None, "snapshot_formatter", path=str(Path(path).absolute()), data=data)[1])


def txn_log_toolkit(path: str | Path) -> str:
    """Return the output of `TxnLogToolkit` for a log."""
    return str(_ask(None, "txn_log_toolkit", path=str(Path(path).absolute()))[1])
