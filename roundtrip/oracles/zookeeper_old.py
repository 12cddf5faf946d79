"""ZooKeeper of older versions as a judge of data directories: its loading code alone, fetched by Maven. See `zookeeper` for today's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from logwright.roundtrip.oracles.java import JavaError, OracleError, Releases

__all__ = ["VERSIONS", "JavaError", "OracleError", "available", "load"]

VERSIONS = ("3.8.4", "3.6.4", "3.4.14")
_RELEASES = Releases(
    Path(__file__).parent / "java" / "zookeeper_old", "org.apache.zookeeper.server.Loader", "-Xmx1g"
)
available, _session = _RELEASES.why_not, _RELEASES.session


def load(version: str, data_dir: str | Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the state of a server of that version after its start with default properties: nodes by path, and the rest.

    A node: path, data (hex), acl (None where it can't be read), stat (as a client sees it). The rest: returned_zxid,
    last_processed_zxid, sessions. Nodes of sessions that are gone are deleted already. Raises `JavaError` where it throws.
    """
    return _session(version).ask("load", dataDir=str(Path(data_dir).absolute()))
