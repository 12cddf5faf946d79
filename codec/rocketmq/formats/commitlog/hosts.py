"""Convert hosts (an IP address and a port) between stored bytes and text: `10.0.0.1:50001`, `[2001:db8::1]:50001`."""

from __future__ import annotations

import ipaddress

import pyarrow as pa

from logwright.codec.columns import constant, contents
from logwright.codec.fault import UsageError


def text(stored: pa.Array) -> pa.Array:
    """Return stored hosts as text. Distinct hosts are few, so each is converted once. IPv4 hosts may be little-endian integers, which are
    faster to compare."""
    packed = stored.dictionary_encode()
    names = [_text(host) for host in packed.dictionary.to_pylist()]
    if len(names) == 1:
        return constant(pa.string(), names[0], len(stored))
    return contents(pa.string(), [name.encode() for name in names]).take(packed.indices)


def _text(host: bytes | int) -> str:
    host = host.to_bytes(8, "little", signed=True) if isinstance(host, int) else host
    address, port = host[:-4], int.from_bytes(host[-4:], "big", signed=True)
    ip = ipaddress.ip_address(address)
    return f"{ip}:{port}" if ip.version == 4 else f"[{ip}]:{port}"


def stored(names: pa.Array, default: str, column: str) -> pa.Array:
    """Return hosts in their stored form. Null is `default`. Raises `UsageError` for text that is not a host."""
    if names.null_count == len(names):
        return constant(pa.binary(), _stored(default, column), len(names))
    packed = names.fill_null(default).dictionary_encode()
    encoded = [_stored(host, column) for host in packed.dictionary.to_pylist()]
    return contents(pa.binary(), encoded).take(packed.indices)


def _stored(name: str, column: str) -> bytes:
    address, _, port = name.rpartition(":")
    try:
        ip = ipaddress.ip_address(address.removeprefix("[").removesuffix("]"))
        return ip.packed + int(port).to_bytes(4, "big", signed=True)
    except (OverflowError, ValueError):
        raise UsageError(
            f"rocketmq.commitlog: {column} {name!r} is not a host",
            advice="Write it as 10.0.0.1:50001 or [2001:db8::1]:50001",
        ) from None
