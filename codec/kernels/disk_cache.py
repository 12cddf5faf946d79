"""The directory of compiled kernels, and numba's view of it. `kernels.kernel` explains what an entry depends on."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_KEPT_SECONDS = 60 * 24 * 3600


def _cache_places() -> Iterator[Path]:
    chosen = os.environ.get("LOGWRIGHT_CACHE_DIR")
    if chosen:
        yield Path(chosen)
        return
    import platformdirs

    yield Path(platformdirs.user_cache_dir("logwright"))
    # Spark's executors often have no writable home. Anybody could have created this directory, so it must be ours alone.
    shared = Path(tempfile.gettempdir(), f"logwright-{os.getuid()}")
    with contextlib.suppress(OSError):
        shared.mkdir(mode=0o700, exist_ok=True)
        if not shared.is_symlink() and _is_ours(shared):
            yield shared


def _is_ours(directory: Path) -> bool:
    """Return whether only this user can write to a directory from which code is loaded."""
    status = directory.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


@functools.cache
def cache_place(mode: str) -> Path | None:
    """Return the directory of compiled kernels; None if nothing can be written."""
    places = (_usable(root, mode) for root in _cache_places())
    return next((place for place in places if place is not None), None)


def _usable(root: Path, mode: str) -> Path | None:
    place = root / "kernels" / f"{sys.implementation.cache_tag}-{mode}"
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        return place if _is_ours(place) and os.access(place, os.W_OK) else None
    except OSError:
        return None


@functools.cache
def listing(place: Path) -> frozenset[str]:
    """Return the names in the cache when they were first asked for."""
    try:
        return frozenset(os.listdir(place))
    except OSError:
        return frozenset()


def _remove_old(place: Path, name: str) -> None:
    """Remove old compiled forms of a kernel."""
    for old in place.glob(f"{name}-*"):
        if time.time() - old.stat().st_mtime > _KEPT_SECONDS:
            old.unlink(missing_ok=True)


def disk_cache(place: Path, name: str, digest: str, options: dict[str, bool]) -> Any:
    """Return a numba cache of one kernel's compiled forms."""
    import llvmlite
    import numba
    from numba.core.caching import NullCache
    from numba.core.compiler import CompileResult
    from numba.core.serialize import dumps

    rebuild: Any = CompileResult._rebuild
    dump: Any = dumps

    class DiskCache(NullCache):
        cache_path = str(place)

        def _path(self, signature: Any, codegen: Any) -> Path:
            made_by = (
                numba.__version__,
                llvmlite.__version__,
                codegen.magic_tuple(),
                str(signature),
                options,
            )
            return place / f"{name}-{digest}-{hashlib.sha256(repr(made_by).encode()).hexdigest()[:16]}"

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            target_context.refresh()
            try:
                stored = self._path(sig, target_context.codegen()).read_bytes()
                return rebuild(target_context, *pickle.loads(stored))
            except Exception:
                # The entry may be missing, truncated or of another build; recompile.
                return None

        def save_overload(self, sig: Any, data: Any) -> None:
            if data.library.has_dynamic_globals or any(not lifted.can_cache for lifted in data.lifted):
                return
            path = self._path(sig, data.codegen)
            beside = path.with_name(f".{path.name[-16:]}-{os.getpid()}-{threading.get_ident()}")
            try:
                beside.write_bytes(dump(data._reduce()))
                os.replace(beside, path)
                _remove_old(place, name)
            except OSError:
                with contextlib.suppress(OSError):
                    beside.unlink(missing_ok=True)

    return DiskCache()
