"""The layout of transactions: a header, a body by type, a digest; of all versions from 3.4 to 3.9.

Source: `zookeeper.jute`, `SerializeUtils.deserializeTxn`, `ZooDefs.OpCode` and `DataTree.processTxn` of ZooKeeper.
"""

from __future__ import annotations

import zlib

import numpy as np

from logwright.codec.describe import (
    I32BE,
    I64BE,
    Either,
    Enclosed,
    Field,
    Int,
    Nothing,
    Repeated,
    Struct,
    Switch,
    Until,
)
from logwright.codec.describe import Bytes as BytesType
from logwright.codec.expression import LEFT
from logwright.codec.zookeeper.jute import ACL, BOOLEAN, BUFFER, I64MS, USTRING, in_hex, vector

# Types of transactions (`ZooDefs.OpCode`)

CLOSE_SESSION, CREATE_SESSION, ERROR = -11, -10, -1
CREATE, DELETE, SET_DATA, SET_ACL, CHECK, MULTI = 1, 2, 5, 7, 13, 14
CREATE2, RECONFIG, CREATE_CONTAINER, DELETE_CONTAINER, CREATE_TTL = 15, 16, 19, 20, 21
TYPE_NAMES = {
    CLOSE_SESSION: "closeSession",
    CREATE_SESSION: "createSession",
    ERROR: "error",
    CREATE: "create",
    DELETE: "delete",
    SET_DATA: "setData",
    SET_ACL: "setACL",
    CHECK: "check",
    MULTI: "multi",
    CREATE2: "create2",
    RECONFIG: "reconfig",
    CREATE_CONTAINER: "createContainer",
    DELETE_CONTAINER: "deleteContainer",
    CREATE_TTL: "createTTL",
}
LOWEST, HIGHEST = min(TYPE_NAMES), max(TYPE_NAMES)
ERR_NAMES = {
    -1: "SYSTEMERROR", -2: "RUNTIMEINCONSISTENCY", -3: "DATAINCONSISTENCY", -4: "CONNECTIONLOSS", -5: "MARSHALLINGERROR",
    -6: "UNIMPLEMENTED", -7: "OPERATIONTIMEOUT", -8: "BADARGUMENTS", -13: "NEWCONFIGNOQUORUM", -14: "RECONFIGINPROGRESS",
    -100: "APIERROR", -101: "NONODE", -102: "NOAUTH", -103: "BADVERSION", -108: "NOCHILDRENFOREPHEMERALS", -110: "NODEEXISTS",
    -111: "NOTEMPTY", -112: "SESSIONEXPIRED", -113: "INVALIDCALLBACK", -114: "INVALIDACL", -115: "AUTHFAILED",
    -118: "SESSIONMOVED", -119: "NOTREADONLY", -120: "EPHEMERALONLOCALSESSION", -121: "NOWATCHER", -122: "REQUESTTIMEOUT",
    -123: "RECONFIGDISABLED", -124: "SESSIONCLOSEDREQUIRESASLAUTH", -125: "QUOTAEXCEEDED", -127: "THROTTLEDOP",
}  # fmt: skip
"""`KeeperException.Code`."""

# Bodies

_PATH = Field("path", USTRING, "of the node")
_DATA = Field("data", BUFFER, "of the node; null and empty differ")
_ACL = Field("acl", vector(ACL), "of the node")
_PARENT_CVERSION = Field("parent_cversion", I32BE, "cversion of the parent afterwards; -1: incremented")
_CREATE = (_PATH, _DATA, _ACL, Field("ephemeral", BOOLEAN, "whether the node is deleted with the session"))
_JUTE = "zookeeper.jute"

CREATE_TXN = Struct("CreateTxn", *_CREATE, _PARENT_CVERSION, source=_JUTE)
CREATE_TXN_V0 = Struct(
    "CreateTxnV0",
    *_CREATE,
    doc="Until 3.3; known by its bytes ending early. Read as parent_cversion -1.",
    source=_JUTE,
)
CREATE_CONTAINER_TXN = Struct("CreateContainerTxn", _PATH, _DATA, _ACL, _PARENT_CVERSION, source=_JUTE)
CREATE_TTL_TXN = Struct(
    "CreateTTLTxn", _PATH, _DATA, _ACL, _PARENT_CVERSION, Field("ttl", I64BE, "milliseconds"), source=_JUTE
)
DELETE_TXN = Struct("DeleteTxn", _PATH, source=_JUTE)
SET_DATA_TXN = Struct(
    "SetDataTxn", _PATH, _DATA, Field("version", I32BE, "version of the data afterwards"), source=_JUTE
)
SET_ACL_TXN = Struct("SetACLTxn", _PATH, _ACL, Field("version", I32BE, "aversion afterwards"), source=_JUTE)
CHECK_VERSION_TXN = Struct(
    "CheckVersionTxn", _PATH, Field("version", I32BE, "the previous version plus one"), source=_JUTE
)
ERROR_TXN = Struct("ErrorTxn", Field("err", Int(4, values=ERR_NAMES), "why a request failed"), source=_JUTE)
CREATE_SESSION_TXN = Struct(
    "CreateSessionTxn", Field("time_out", I32BE, "milliseconds until it expires"), source=_JUTE
)
CLOSE_SESSION_TXN = Struct(
    "CloseSessionTxn",
    Field("paths_to_delete", vector(USTRING), "the session's ephemeral nodes (paths2Delete)"),
    doc="Since 3.6, unless zookeeper.closeSessionTxn.enabled is off: then the transaction has no body.",
    source=_JUTE,
)
TXN_DIGEST = Struct(
    "TxnDigest",
    Field("version", I32BE, "of the digest: 2"),
    Field("tree_digest", I64BE, "of the whole tree after the transaction"),
    doc="Since 3.6, unless zookeeper.digest.enabled is off; never on errors.",
    source=_JUTE,
)

SUB_BODIES: dict[int, Struct] = {
    ERROR: ERROR_TXN,
    CREATE: CREATE_TXN,
    CREATE2: CREATE_TXN,
    CREATE_CONTAINER: CREATE_CONTAINER_TXN,
    CREATE_TTL: CREATE_TTL_TXN,
    DELETE: DELETE_TXN,
    DELETE_CONTAINER: DELETE_TXN,
    SET_DATA: SET_DATA_TXN,
    CHECK: CHECK_VERSION_TXN,
}
"""The transactions that a multi may contain (`DataTree.processTxn`)."""
_NOTHING = Nothing()
_TYPE = Int(4, values=TYPE_NAMES)
TXN = Struct(
    "Txn",
    Field("type", _TYPE, "what it does"),
    Field("data", Enclosed(I32BE, Switch("type", {**SUB_BODIES, None: BytesType()})), "how"),
    doc="One of the transactions of a multi: a body alone, without header and digest.",
    source=_JUTE,
)
MULTI_TXN = Struct("MultiTxn", Field("txns", vector(TXN), "all of them are applied, or none"), source=_JUTE)

BODIES: dict[int, Struct] = {
    CLOSE_SESSION: CLOSE_SESSION_TXN,
    CREATE_SESSION: CREATE_SESSION_TXN,
    ERROR: ERROR_TXN,
    CREATE: CREATE_TXN,
    DELETE: DELETE_TXN,
    SET_DATA: SET_DATA_TXN,
    SET_ACL: SET_ACL_TXN,
    MULTI: MULTI_TXN,
    CREATE2: CREATE_TXN,
    RECONFIG: SET_DATA_TXN,
    CREATE_CONTAINER: CREATE_CONTAINER_TXN,
    DELETE_CONTAINER: DELETE_TXN,
    CREATE_TTL: CREATE_TTL_TXN,
}
"""The transactions that a record may contain (`SerializeUtils.deserializeTxn`)."""


DIGEST_VERSION = 2
"""`DigestCalculator.DIGEST_VERSION`."""
_BODILESS = -0x5A4B0001
"""A pseudo-type, which no server uses, for transactions without a body."""

PAYLOAD = Struct(
    "TxnLogEntry",
    Field("client_id", I64BE, "the session; 0 if the server itself is the client", says=in_hex),
    Field("cxid", I32BE, "number of the request within the session"),
    Field("zxid", I64BE, "number of the transaction: epoch << 32 | counter", says=in_hex),
    Field("time", I64MS, "time of creation"),
    Field("type", _TYPE, "what it does"),
    Field(
        "body",
        Switch(
            # A digest without a body before it would be nonsense as a vector of paths.
            f"{_BODILESS} if type == {CLOSE_SESSION} and"
            f" ({LEFT} < 4 or {LEFT} == {TXN_DIGEST.head_size} and i32be(0) == {DIGEST_VERSION}) else type",
            {
                **BODIES,
                CREATE: Either(CREATE_TXN, CREATE_TXN_V0),
                CLOSE_SESSION: Either(CLOSE_SESSION_TXN, _NOTHING),
                _BODILESS: _NOTHING,
                None: BytesType(),
            },
        ),
        "how",
    ),
    Field(
        "digest",
        Switch(f"{LEFT} >= {TXN_DIGEST.head_size}", {1: TXN_DIGEST, 0: _NOTHING}),
        "of the tree after it",
    ),
    Field("rest", BytesType(), "ignored by readers; usually empty", default=b""),
    doc="A transaction: TxnHeader, its record, TxnDigest.",
    source="SerializeUtils.deserializeTxn",
)
TXN_HEADER = PAYLOAD.offset("body")
"""Size of a TxnHeader in bytes."""
CLIENT_AT, CXID_AT, ZXID_AT, TIME_AT, TYPE_AT = (
    PAYLOAD.offset(name) for name in ("client_id", "cxid", "zxid", "time", "type")
)
DIGEST_SIZE, TREE_DIGEST_AT = TXN_DIGEST.head_size, TXN_DIGEST.offset("tree_digest")
SUB_DATA_AT = TXN.offset("data")

EOR = 0x42
"""The byte after each transaction, 'B' (`FileTxnLog.append`)."""


def _checksum(covered: bytes) -> int:
    """The Adler-32 covers the payload alone, neither its length nor the end mark."""
    return zlib.adler32(covered[4:-1])


RECORD = Struct(
    "TxnRecord",
    Field("checksum", I64BE, "Adler-32 of the payload, in the lower half", checksum=(_checksum, "payload")),
    Field("payload", Enclosed(I32BE, PAYLOAD), "the transaction"),
    Field("eor", Int(1, signed=False, values={EOR: "B"}), "end of the record", default=EOR),
    doc="A transaction in a log. No checksum covers its length and end mark.",
    source="FileTxnLog.append",
)
LENGTH = RECORD.offset("payload")
"""Position of the payload length in a record; the payload follows."""
OVERHEAD = LENGTH + 4 + 1
"""Size of a record without its payload."""


def record_of(payload: bytes) -> bytes:
    """Return a record of this payload."""
    head = I64BE.pack(zlib.adler32(payload), {}) + I32BE.pack(len(payload), {})
    return head + payload + bytes([EOR])


MAGIC = b"ZKLG"
_MAGIC = int.from_bytes(MAGIC, "big")
FILE_HEADER = Struct(
    "FileHeader",
    Field("magic", Int(4), "ZKLG", default=_MAGIC, only=_MAGIC),
    Field("version", I32BE, "2; ignored by readers", default=2),
    Field("dbid", I64BE, "0; ignored by readers", default=0),
    doc="The start of a log. No checksum covers it.",
    source="org.apache.zookeeper.server.persistence.FileHeader",
)
HEADER_SIZE = FILE_HEADER.head_size
TXN_LOG = Struct(
    "TxnLog",
    Field("header", FILE_HEADER),
    Field(
        "records",
        Repeated(
            RECORD, least=LENGTH + 4, until=Until(0, I32BE, LENGTH, "a length of 0, in preallocated space")
        ),
        "the transactions",
        rows=True,
    ),
    Field("padding", BytesType(), "preallocated zeros", default=b""),
    doc="A transaction log.",
    source="org.apache.zookeeper.server.persistence.FileTxnLog",
)

# The same for kernels: the fields of a body. Their order is the same in all types.

PATH, DATA, ACLS, EPHEMERAL, NUMBER, TTL, PATHS, TXNS = (1 << i for i in range(8))
BITS = {
    "path": PATH, "data": DATA, "acl": ACLS, "ephemeral": EPHEMERAL, "parent_cversion": NUMBER, "version": NUMBER, "err": NUMBER,
    "time_out": NUMBER, "ttl": TTL, "paths_to_delete": PATHS, "txns": TXNS,
}  # fmt: skip
"""The bit of each field."""
NUMBERS = ("parent_cversion", "version", "err", "time_out")
"""The meanings of the 32-bit number of a body. A body has at most one."""


def recipe(struct: Struct) -> int:
    """Return the fields of a body as bits. Raises `TypeError` if they are not in the order that the kernels expect."""
    bits = [BITS[field.name] for field in struct.fields]
    if bits != sorted(set(bits)):
        raise TypeError(f"{struct.name}: fields in another order")
    return sum(bits)


def _recipes(bodies: dict[int, Struct]) -> tuple[int, ...]:
    return tuple(recipe(bodies[kind]) if kind in bodies else 0 for kind in range(LOWEST, HIGHEST + 1))


RECIPES = _recipes(BODIES)
"""By type, from `LOWEST` on; 0 for none."""
SUB_RECIPES = _recipes(SUB_BODIES)
RECIPE_ARRAY, SUB_RECIPE_ARRAY = np.array(RECIPES, np.int64), np.array(SUB_RECIPES, np.int64)
NUMBER_OF = {
    kind: next(field.name for field in struct.fields if field.name in NUMBERS)
    for kind, struct in {**SUB_BODIES, **BODIES}.items()
    if recipe(struct) & NUMBER
}
"""The meaning of its number by type."""
NUMBER_FIELD = np.array(
    [NUMBERS.index(NUMBER_OF[kind]) if kind in NUMBER_OF else -1 for kind in range(LOWEST, HIGHEST + 1)],
    np.int8,
)
"""The index of that meaning in `NUMBERS` by type, from `LOWEST` on; -1 for none."""
