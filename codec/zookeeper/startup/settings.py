"""The simulated version and those of its properties that change the outcome of a start.

Names are those of the system properties without `zookeeper.`; defaults are ZooKeeper's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from logwright.codec.arrays import Int64s
from logwright.codec.option import Option, Options, parse_bool
from logwright.codec.zookeeper.formats.snapshot import codec as snapshot
from logwright.codec.zookeeper.formats.snapshot import write as encode
from logwright.codec.zookeeper.formats.txnlog import layout
from logwright.codec.zookeeper.formats.txnlog.tables import LIMITS as TXNLOG_LIMITS
from logwright.codec.zookeeper.store.files import DataFile

NEWEST = {(3, 9): 5, (3, 8): 6, (3, 7): 2, (3, 6): 4, (3, 5): 10, (3, 4): 14}
"""The last examined release of each line."""
VERSIONS = tuple(
    f"{major}.{minor}.{patch}" for (major, minor), newest in NEWEST.items() for patch in range(newest, -1, -1)
)

_SINCE = {
    layout.CREATE2: (3, 5, 0),
    layout.RECONFIG: (3, 5, 0),
    layout.CREATE_CONTAINER: (3, 5, 1),
    layout.DELETE_CONTAINER: (3, 5, 1),
    layout.CREATE_TTL: (3, 5, 3),
}
"""Types of transactions that were added later."""
_WRITING = {option.name: option for option in (*encode.OPTIONS, *TXNLOG_LIMITS)}
_OF_TREE = (
    *("digests", "extended_types", "close_session_txn", "acl_lookups", "existing_by_path", "monotonic"),
    *("containers", "create2_in_multi"),
)

TRUST_EMPTY = Option(
    "snapshot.trust.empty", False, "Logs without any snapshot are replayed over an empty tree", parse_bool
)
AUTOCREATE = Option(
    "db.autocreate", True, "An empty directory counts as an empty tree, not as lost data", parse_bool
)
CLOSE_SESSION_TXN = Option(
    "closeSessionTxn.enabled",
    True,
    "The transaction that closes a session is read with the paths that it deletes (3.6 on)",
    parse_bool,
)
EXTENDED_TYPES = Option(
    "extendedTypesEnabled",
    False,
    "TTL nodes are recognised; without it they are deleted at the start, as ephemeral nodes of a closed session",
    parse_bool,
)
DISTRIBUTED = Option(
    "distributed",
    False,
    "The server is a member of an ensemble (QuorumPeerConfig.isDistributed): its epochs must agree with its transactions",
    parse_bool,
)
OPTIONS = (
    DISTRIBUTED,
    TRUST_EMPTY,
    AUTOCREATE,
    CLOSE_SESSION_TXN,
    EXTENDED_TYPES,
    *(
        _WRITING[name]
        for name in (
            "digest.enabled",
            "serializeLastProcessedZxid.enabled",
            "snapshot.compression.method",
            "jute.maxbuffer",
            "jute.maxbuffer.extrasize",
        )
    ),
    snapshot.MAX_DECOMPRESSED,
)


class Since:
    """A property of `ServerSettings`: whether the version is at least the first of `versions`, or a later one of the branch of another,
    to which the change was ported back; and the option, if any, is on."""

    def __init__(self, *versions: tuple[int, int, int], option: str | None = None) -> None:
        self._versions, self._option = versions, option

    def __get__(self, settings: ServerSettings, owner: object = None) -> bool:
        first, *ported = self._versions
        version = settings.version
        known = version >= first or any(version[:2] == port[:2] and version >= port for port in ported)
        return known and (self._option is None or bool(settings.options[self._option]))


@dataclass(frozen=True)
class ServerSettings:
    """A version with its properties."""

    name: str
    """One of `VERSIONS`."""
    options: Options

    digests = Since((3, 6, 0), option="digest.enabled")
    """`ZooKeeperServer.isDigestEnabled`, ZOOKEEPER-3114."""
    last_processed = Since((3, 9, 0), option="serializeLastProcessedZxid.enabled")
    """`ZooKeeperServer.isSerializeLastProcessedZxidEnabled`, ZOOKEEPER-4570."""
    close_session_txn = Since((3, 6, 0), option="closeSessionTxn.enabled")
    """`ZooKeeperServer.isCloseSessionTxnEnabled`, ZOOKEEPER-3145."""
    extended_types = Since((3, 5, 4), option="extendedTypesEnabled")
    """`EphemeralType.extendedEphemeralTypesEnabled`, ZOOKEEPER-2901."""
    compression = Since((3, 6, 0))
    """`SnapStream`: older versions have uncompressed snapshots only, ZOOKEEPER-3179."""
    containers = Since((3, 5, 1))
    """Whether containers are known; before, they were ephemeral nodes: ZOOKEEPER-2163."""
    create2_in_multi = Since((3, 8, 2), (3, 7, 2))
    """Whether a create2 in a multi is applied; otherwise the multi ends there: ZOOKEEPER-4026."""
    config_node = Since((3, 5, 0))
    """Whether a new tree has /zookeeper/config, with its own ACL: ZOOKEEPER-107."""
    null_paths = Since((3, 5, 0))
    """Whether a node with a null path is read before the start fails; up to 3.4 it failed at once."""
    acl_lookups = Since((3, 9, 2), (3, 8, 4))
    """Whether a transaction looks up the ACL of its node, which fails if the table lacks it: ZOOKEEPER-4799."""
    existing_by_path = Since((3, 9, 4), (3, 8, 5))
    """Whether a node exists if its path is known, even if its parent does not list it as a child: ZOOKEEPER-4846."""
    monotonic = Since((3, 6, 0))
    """Whether the counters of a parent only grow when transactions are applied again: ZOOKEEPER-3125, ZOOKEEPER-3249."""
    saves_at_start = Since((3, 5, 0))
    deletes_empty_tail = Since((3, 9, 3))
    """ZOOKEEPER-2332."""
    refuses_gaps = Since((3, 9, 4))
    """ZOOKEEPER-4925."""
    checks_directories = Since((3, 5, 4), (3, 4, 12))
    """ZOOKEEPER-2967."""

    @cached_property
    def version(self) -> tuple[int, ...]:
        return tuple(map(int, self.name.split(".")))

    @property
    def distributed(self) -> bool:
        return bool(self.options["distributed"])

    def takes(self, file: DataFile) -> bool:
        """Return whether a name is that of a log or snapshot. Before compressed snapshots a name had exactly two parts
        (`Util.getZxidFromName`)."""
        return self.compression or not file.named.rest

    @property
    def tree(self) -> dict[str, bool]:
        """The arguments of trees (`tree.Tree`)."""
        return {name: getattr(self, name) for name in _OF_TREE}

    @property
    def method(self) -> str:
        """The compression of the snapshot that is written at the start."""
        method = self.options["snapshot.compression.method"]
        return method if self.compression and method not in (None, "none") else ""

    @property
    def refuses_logs_alone(self) -> bool:
        """Logs without a snapshot are refused since ZOOKEEPER-2325; `snapshot.trust.empty` was added by ZOOKEEPER-3056."""
        if self.version < (3, 5, 3):
            return False
        return self.version < (3, 5, 6) or not self.options["snapshot.trust.empty"]

    @property
    def trusts_empty(self) -> bool:
        return self.version < (3, 6, 0) or bool(self.options["db.autocreate"])

    @property
    def limit(self) -> int:
        """The longest length that is read (`BinaryInputArchive.checkLength`)."""
        most = int(self.options["jute.maxbuffer"])
        extra = self.options["jute.maxbuffer.extrasize"]
        if self.version < (3, 5, 7):
            total = most + 1024
        else:
            total = most + max(most if extra is None else int(extra), 1024)
        if (3, 9, 0) <= self.version < (3, 9, 3) or self.version < (3, 8, 5):
            return (total + (1 << 31)) % (1 << 32) - (1 << 31)  # as Java adds
        return min(total, (1 << 31) - 1)

    @cached_property
    def recipes(self) -> Int64s:
        """The fields of transactions by type, from `LOWEST` on (`layout.RECIPES`); 0 for types that the version does not know."""
        known = layout.RECIPE_ARRAY.copy()
        for kind, since in _SINCE.items():
            if self.version < since:
                known[kind - layout.LOWEST] = 0
        return known

    @property
    def unsupported(self) -> str:
        """The message for an unknown type (`SerializeUtils.deserializeTxn`, ZOOKEEPER-4494)."""
        return "Unsupported Txn with type=" + ("" if self.version >= (3, 9, 0) else "%d")
