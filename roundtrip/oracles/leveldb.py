"""LevelDB itself as an oracle: the library in the wheel of plyvel, called through its C interface for functions missing in plyvel,
the status of an iterator above all. It runs in a separate process, which damage may crash.

    with LevelDB() as leveldb:
        answer = leveldb.open("/tmp/db", paranoid_checks=True)
        answer.status, answer.rows, answer.iterated

The directory asked about is changed, as LevelDB does.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

VERSION = "1.22"
OK = "OK"
DIED = "the process died"
_REUSE_LOGS = 84
"""The offset of a field in `Options` of version 1.22 on 64-bit machines, for which the C interface has no setter."""
_SWITCHES = ("create_if_missing", "error_if_exists", "paranoid_checks")


@dataclass(frozen=True)
class Answer:
    """LevelDB's answer: the status of opening, the iterated rows, and the final status of the iterator."""

    status: str
    rows: Sequence[tuple[bytes, bytes]] = ()
    iterated: str = ""
    dropped: Sequence[str] = ()
    """Lines of LOG about dropped or ignored data."""
    after: Sequence[str] = field(default=())
    """The files of the directory when it was closed again."""


def available() -> str:
    """Return why LevelDB cannot be used; "" if it can."""
    try:
        _library()
    except (ImportError, AttributeError, OSError) as error:
        return f"plyvel with the C interface of LevelDB is needed: {error}"
    return ""


class LevelDB:
    """A worker process, replaced if it dies."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> LevelDB:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            # It exits at the end of its input.
            self._process.communicate()
            self._process = None

    def open(self, path: str, **options: Any) -> Answer:
        """Open the database at a path and iterate over it from its first to its last key. Options: `create_if_missing`,
        `error_if_exists`, `paranoid_checks`, `verify_checksums`, `reuse_logs`, `write_buffer_size`, `bloom_bits_per_key`."""
        if self._process is None or self._process.poll() is not None:
            self.__exit__()
            self._process = subprocess.Popen(
                [sys.executable, "-m", __spec__.name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # The path in messages is the directory's own name.
        above, name = os.path.split(os.path.abspath(path))
        self._process.stdin.write(json.dumps({"above": above, "name": name, "options": options}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            return Answer(DIED)
        answer = json.loads(line)
        answer["rows"] = [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in answer["rows"]]
        return Answer(**answer)


def _library() -> Any:
    import plyvel._plyvel  # type: ignore[import-untyped]

    library = ctypes.CDLL(plyvel._plyvel.__file__)
    for name in (
        "options_create", "open", "readoptions_create", "create_iterator", "iter_key", "iter_value", "filterpolicy_create_bloom",
    ):  # fmt: skip
        getattr(library, f"leveldb_{name}").restype = ctypes.c_void_p
    library.leveldb_iter_valid.restype = ctypes.c_ubyte
    return library


class _Caller:
    """The library calls, in the worker process."""

    def __init__(self) -> None:
        self.library = _library()

    def _error(self, pointer: Any) -> str:
        return OK if not pointer.value else str(pointer.value.decode(errors="replace"))

    def open(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        library = self.library
        settings = ctypes.c_void_p(library.leveldb_options_create())
        for switch in _SWITCHES:
            getattr(library, f"leveldb_options_set_{switch}")(
                settings, ctypes.c_ubyte(bool(options.get(switch)))
            )
        if "write_buffer_size" in options:
            library.leveldb_options_set_write_buffer_size(
                settings, ctypes.c_size_t(options["write_buffer_size"])
            )
        if options.get("bloom_bits_per_key"):
            policy = library.leveldb_filterpolicy_create_bloom(ctypes.c_int(options["bloom_bits_per_key"]))
            library.leveldb_options_set_filter_policy(settings, ctypes.c_void_p(policy))
        assert settings.value is not None
        ctypes.c_ubyte.from_address(settings.value + _REUSE_LOGS).value = bool(options.get("reuse_logs"))
        error = ctypes.c_char_p()
        database = library.leveldb_open(settings, ctypes.c_char_p(name.encode()), ctypes.byref(error))
        answer: dict[str, Any] = {"status": self._error(error), "rows": [], "iterated": ""}
        if database:
            self._iterate(ctypes.c_void_p(database), answer, verify=bool(options.get("verify_checksums")))
            library.leveldb_close(ctypes.c_void_p(database))
        answer["after"] = sorted(os.listdir(name)) if os.path.isdir(name) else []
        answer["dropped"] = _dropped(os.path.join(name, "LOG"))
        return answer

    def _iterate(self, database: Any, answer: dict[str, Any], *, verify: bool) -> None:
        library = self.library
        reading = ctypes.c_void_p(library.leveldb_readoptions_create())
        library.leveldb_readoptions_set_verify_checksums(reading, ctypes.c_ubyte(verify))
        iterator = ctypes.c_void_p(library.leveldb_create_iterator(database, reading))
        library.leveldb_iter_seek_to_first(iterator)
        size = ctypes.c_size_t()
        while library.leveldb_iter_valid(iterator):
            pair = []
            for get in (library.leveldb_iter_key, library.leveldb_iter_value):
                place = get(iterator, ctypes.byref(size))
                pair.append(ctypes.string_at(place, size.value).hex() if size.value else "")
            answer["rows"].append(pair)
            library.leveldb_iter_next(iterator)
        error = ctypes.c_char_p()
        library.leveldb_iter_get_error(iterator, ctypes.byref(error))
        answer["iterated"] = self._error(error)
        library.leveldb_iter_destroy(iterator)


def _dropped(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            # Skip date, time and thread.
            lines = [line.rstrip("\n").split(" ", 2)[-1] for line in file]
    except OSError:
        return []  # it could not begin one
    return [line for line in lines if ": dropping " in line or line.startswith("Ignoring error ")]


def _answer() -> None:
    caller = _Caller()
    for line in sys.stdin:
        asked = json.loads(line)
        os.chdir(asked["above"])
        print(json.dumps(caller.open(asked["name"], asked["options"])), flush=True)


if __name__ == "__main__":
    _answer()
