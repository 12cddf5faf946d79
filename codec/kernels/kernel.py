"""Kernels: plain Python functions that run interpreted, bounds-checked or compiled from the same source.

`@kernel` makes a wrapper. Importing a module of kernels imports no numba: the wrapper makes its dispatcher when the compiled
form is first needed: by a call that is worth compiling, or by a compiled kernel that calls it (numba asks a global it does not
know for `_numba_type_`). Three modes, by numba's own environment variables, read once:

    NUMBA_DISABLE_JIT=1     interpreted: for debugging and coverage, and the reference for the other modes
    NUMBA_BOUNDSCHECK=1     checked: compiled with bounds checks, for fuzzing
    neither                 compiled

In the compiled modes small inputs still run interpreted, because importing numba and compiling would cost more; see
`Kernel._interprets`. `LOGWRIGHT_INTERPRET_BELOW=<bytes>` overrides the limit; 0 always compiles.

Compiled kernels are cached in the user's cache directory, or in `LOGWRIGHT_CACHE_DIR`. The key of an entry covers everything that the
machine code depends on: versions, processor, mode, argument types, and a digest of the byte code and constants of the
kernel, of all kernels and intrinsics that it calls, and of the constants those use. So an edited callee, a changed field
of a description or a changed mode cause recompilation, and edits elsewhere do not. No source file is needed, so the cache works
from a zip. numba's own cache ignores edited callees and the mode. Without a writable directory nothing is cached.

Rules for a kernel: arguments are C-contiguous arrays, scalars and named tuples of these; integers are int64 throughout
(numba makes floats of int64 mixed with uint64; NumPy scalars are narrow, and warn where compiled code wraps: read a byte
with `load_u8`); a global is a number, a tuple, an array, a kernel or an intrinsic; a result is a scalar or a tuple of
scalars. Kernels do not allocate: output arrays are arguments.
"""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import inspect
import itertools
import os
import sys
import threading
import time
import types as python_types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, get_type_hints, overload

import numpy as np

from logwright.codec.deferred import Deferred
from logwright.codec.kernels.disk_cache import cache_place, disk_cache, listing

P = ParamSpec("P")
R = TypeVar("R")

INTERPRETED, CHECKED, COMPILED = "interpreted", "checked", "compiled"

# Rough costs of the first compiled call in seconds, and the assumed speed of interpretation until it is measured.
# They never affect results.
IMPORT_COST = 0.3
COMPILE_COST = 2.0
LOAD_COST = 0.01
INTERPRETED_BYTES_PER_SECOND = 8_000_000

WORTH_COMPILING = 256 << 20
"""Bytes for which the compiled form of a kernel pays that saves a part of the time of other functions."""


def _environment_number(name: str) -> int | None:
    try:
        return int(os.environ.get(name, ""))
    except ValueError:
        return None


def _mode() -> str:
    if _environment_number("NUMBA_DISABLE_JIT"):
        return INTERPRETED
    return CHECKED if _environment_number("NUMBA_BOUNDSCHECK") else COMPILED


_MODE = _mode()
_INTERPRET_BELOW = _environment_number("LOGWRIGHT_INTERPRET_BELOW")
_registry: dict[str, Kernel[..., Any]] = {}


class _Local(threading.local):
    interpreting = False


_local = _Local()


def mode() -> str:
    """Return the mode of this process: "interpreted", "checked" or "compiled"."""
    return _MODE


def kernels() -> tuple[Kernel[..., Any], ...]:
    """Return all kernels of the modules imported so far."""
    return tuple(_registry.values())


def warmup() -> Iterator[tuple[str, float]]:
    """Compile all imported kernels with a signature, or load them from the cache. Yields (name, seconds)."""
    for each in compiled_ahead():
        started = time.perf_counter()
        each.compile()
        yield each.name, time.perf_counter() - started


def compiled_ahead() -> list[Kernel[..., Any]]:
    """Return the imported kernels that `warmup` compiles."""
    return [each for each in kernels() if each.signature is not None and _MODE != INTERPRETED]


class Kernel(Generic[P, R]):
    """A kernel, called like its plain function `py_func`."""

    __qualname__: str

    def __init__(
        self,
        function: Callable[P, R],
        signature: str | None,
        python: Callable[P, R] | None,
        *,
        brief: bool = False,
        inline: bool = False,
    ) -> None:
        self.py_func = function
        self.signature = signature
        self._brief = brief
        self.inline = inline
        self.name = f"{function.__module__}.{function.__qualname__}"
        functools.update_wrapper(self, function)
        self._python = function if python is None else python
        # The function that calls run, once a call was worth compiling.
        self._run: Callable[..., Any] | None = (
            self._python if python is not None or _MODE == INTERPRETED else None
        )
        self._dispatcher: Any = None
        self._making: Any = None
        self._spent = 0.0
        self._seen = 0
        self._cached: bool | None = None
        _registry[self.name] = self

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        run = self._run
        if run is None:
            if _local.interpreting:
                return self._python(*args, **kwargs)
            nbytes = _nbytes(args)
            if self._interprets(nbytes):
                self._seen += nbytes
                return self._interpret(*args, **kwargs)
            run = self._run = self.compile()
        result: R = run(*args, **kwargs)
        return result

    def _interprets(self, nbytes: int) -> bool:
        """Return whether a call with arrays of `nbytes` bytes runs interpreted.

        It does as long as all interpreted calls of this kernel, including this one, cost less than obtaining the compiled
        form. So the total time is at most twice the optimum.
        """
        if _INTERPRET_BELOW is not None:
            return nbytes < _INTERPRET_BELOW
        if self._dispatcher is not None:
            return False  # compiled already, for another kernel or by `warmup`
        rate = self._spent / self._seen if self._seen else 1 / INTERPRETED_BYTES_PER_SECOND
        expected = self._spent + nbytes * rate
        numba = 0.0 if "numba" in sys.modules else IMPORT_COST
        if expected < numba + LOAD_COST:
            # Even a cached kernel would cost more, so the cache is not checked.
            return True
        if self._cached is None:
            self._cached = self.cached()
        return expected < numba + (LOAD_COST if self._cached else COMPILE_COST)

    def is_ready(self, nbytes: int) -> bool:
        """Return whether a call on `nbytes` bytes runs compiled, and compile or load the kernel if that is worth it.

        For a kernel that replaces faster functions than its interpreted form. In interpreted mode it always runs.
        """
        if self._run is None and not _local.interpreting:
            self._seen += nbytes
            if self._is_worth_loading(nbytes) and (run := self.compile()) is not self._python:
                self._run = run
        return self._run is not None

    def _is_worth_loading(self, nbytes: int) -> bool:
        if _INTERPRET_BELOW is not None:
            return nbytes >= _INTERPRET_BELOW
        if self._dispatcher is not None or self._seen >= WORTH_COMPILING:
            return True
        if "numba" not in sys.modules:
            return False
        if self._cached is None:
            self._cached = self.cached()
        return self._cached

    def _interpret(self, *args: P.args, **kwargs: P.kwargs) -> R:
        _local.interpreting = True
        started = time.perf_counter()
        try:
            return self._python(*args, **kwargs)
        finally:
            self._spent += time.perf_counter() - started
            _local.interpreting = False

    def compile(self) -> Callable[..., Any]:
        """Return the numba dispatcher, compiled or loaded if there is a signature; the plain function without numba."""
        if self._dispatcher is None:
            try:
                import numba
            except ImportError:
                # Nodes of a cluster that received a zip may lack numba. Slow is better than failing.
                warnings.warn(
                    "numba is not installed: logwright runs several hundred times slower", stacklevel=3
                )
                return self._python
            from numba.core.compiler_lock import global_compiler_lock

            # numba's own lock: a compiling thread holds it while it requests the dispatchers of callees.
            with global_compiler_lock:
                if self._dispatcher is None:
                    config: Any = numba.config
                    if config.DISABLE_JIT:
                        # Set by numba's configuration file.
                        return self._python
                    if self._making is not None:
                        # A recursive kernel is being compiled.
                        return self._making  # type: ignore[no-any-return]
                    self._dispatcher = self._make(numba.njit)
        return self._dispatcher  # type: ignore[no-any-return]

    def _make(self, njit: Any) -> Any:
        options = {"nogil": not self._brief, "boundscheck": _MODE == CHECKED}
        if self.inline:
            options["forceinline"] = True
        if self.signature is not None:
            # Disable numba's reference counting of arrays: two atomic operations per call between kernels, which take longer than
            # reading a varint, although the arrays outlive the call anyway.
            options["_nrt"] = False
        dispatcher = self._making = njit(**options)(self.py_func)
        try:
            place = cache_place(_MODE)
            digest = None if place is None else fingerprint(self.py_func)
            if place is not None and digest is not None:
                dispatcher._cache = disk_cache(place, self.name, digest, options)
            if self.signature is not None:
                dispatcher.compile(_numba_signature(self.signature, self.py_func.__globals__))
                # A missing conversion is an error, instead of compiling for another type.
                dispatcher.disable_compile()
                for form in dispatcher.overloads.values():
                    _check_result(self.name, form.signature.return_type)
        finally:
            self._making = None
        return dispatcher

    @property
    def _numba_type_(self) -> Any:
        return self.compile()._numba_type_  # type: ignore[attr-defined]

    def cached(self) -> bool:
        """Return whether the cache seems to hold this kernel, for any version of numba, which is not imported."""
        place = cache_place(_MODE)
        digest = None if place is None else fingerprint(self.py_func)
        if place is None or digest is None:
            return False
        return any(entry.startswith(f"{self.name}-{digest}-") for entry in listing(place))

    def __reduce__(self) -> str:
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"


@overload
def kernel(function: Callable[P, R], /) -> Kernel[P, R]: ...
@overload
def kernel(
    signature: str, /, *, python: Callable[..., Any] | None = None, brief: bool = False, inline: bool = False
) -> Callable[[Callable[P, R]], Kernel[P, R]]: ...
def kernel(
    argument: Any, /, *, python: Callable[..., Any] | None = None, brief: bool = False, inline: bool = False
) -> Any:
    """Make a kernel, `@kernel` or `@kernel("const u1[], i8, i8")`.

    The signature lists the types of the arguments: `i8 i4 i2 i1 u8 u4 u2 u1 f8 b1` (b1 is a bool), `T[]` for a C-contiguous array of one
    dimension, `T[,]` of two, `const T[]` for a read-only argument (writable arrays are accepted), and the name of a named tuple class in
    the kernel's module with fields annotated as `Annotated[..., "i8[]"]`. Members of a named tuple are not converted.

    A kernel with a signature has one compiled form, which `logwright warmup` compiles, and converts its arguments. Without a signature
    there is one form for each combination of types; read-only and writable arrays differ.

    `python` replaces the function for calls from Python and in interpreted mode, if a package is faster. A call releases the GIL, except
    for a `brief` kernel: reacquiring the GIL takes longer than a few microseconds of work. An `inline` kernel is inlined into its callers,
    for kernels that take no longer than the call itself.
    """
    if isinstance(argument, str):
        return lambda function: Kernel(function, argument, python, brief=brief, inline=inline)
    return Kernel(argument, None, None)


class Intrinsic(Generic[P, R]):
    """A function whose compiled form is LLVM code; called from Python it is the plain function it was made from."""

    __qualname__: str

    def __init__(self, function: Callable[P, R], signature: str, generate: Callable[..., Any]) -> None:
        self.py_func = function
        self.signature = signature
        self.generate = generate
        functools.update_wrapper(self, function)
        self._type: Any = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.py_func(*args, **kwargs)

    @property
    def _numba_type_(self) -> Any:
        # Only the compiler calls this, under numba's lock.
        if self._type is None:
            from numba.core.registry import cpu_target
            from numba.extending import intrinsic as numba_intrinsic

            function = numba_intrinsic(_typing(self))
            cpu_target.typing_context.refresh()
            self._type = cpu_target.typing_context.resolve_value_type(function)
        return self._type

    def __reduce__(self) -> str:
        return self.__qualname__


def intrinsic(signature: str, generate: Callable[..., Any]) -> Callable[[Callable[P, R]], Intrinsic[P, R]]:
    """Make an intrinsic from its plain function: `@intrinsic("const u1[], i8 -> i8", generate)`.

    An argument is `i8` for any integer, `u1[]` or `const u1[]` for bytes, or `any[]` for any array. Results are those of kernels, or `none`.
    `generate` is a code generator of numba, `(context, builder, signature, args)`.
    """
    return lambda function: Intrinsic(function, signature, generate)


# Signatures


def _typing(function: Intrinsic[..., Any]) -> Callable[..., Any]:
    """Return what `numba.extending.intrinsic` takes: a function from types to a signature and a code generator."""
    from numba.core import types

    arguments, _, results = function.signature.partition("->")
    words, kinds = [word.strip() for word in arguments.split(",")], _numba_signature(results)
    several: Any = types.Tuple
    result = several(kinds) if len(kinds) > 1 else kinds[0]

    def accepts(word: str, actual: Any) -> bool:
        if not word.endswith("[]"):
            return isinstance(actual, types.Integer)
        if word == "any[]" or not isinstance(actual, types.Array):
            return isinstance(actual, types.Array)
        is_bytes = (actual.dtype, actual.ndim, actual.layout) == (types.uint8, 1, "C")
        return is_bytes and (actual.mutable or word.startswith("const "))

    def typed(typing_context: Any, *actual: Any) -> Any:
        if not all(map(accepts, words, actual)):
            return None
        taken = [kind if isinstance(kind, types.Array) else types.int64 for kind in actual]
        return result(*taken), function.generate

    # numba takes the names of the arguments from here.
    plain = inspect.signature(function.py_func)
    context = inspect.Parameter("typing_context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    typed.__signature__ = plain.replace(parameters=[context, *plain.parameters.values()])  # type: ignore[attr-defined]
    return typed


def _nbytes(args: Iterable[object]) -> int:
    """Return the total size of all arrays, including those in tuples."""
    return sum(_nbytes(arg) if isinstance(arg, tuple) else getattr(arg, "nbytes", 0) for arg in args)


def _numba_signature(
    text: str, names: Mapping[str, Any] = python_types.MappingProxyType({})
) -> tuple[Any, ...]:
    """Return the types of a signature. `names`: the classes of named tuples."""
    from numba.core import types

    named_tuple: Any = types.NamedTuple

    def one(word: str) -> Any:
        if word in names:
            fields = get_type_hints(names[word], include_extras=True).values()
            return named_tuple([one(field.__metadata__[0]) for field in fields], names[word])
        base, bracket, dimensions = word.removeprefix("const ").partition("[")
        scalar = getattr(types, base.strip())
        if not bracket:
            return scalar
        return types.Array(scalar, dimensions.count(",") + 1, "C", readonly=word.startswith("const "))

    words = text.replace("[,]", "[;]").split(",")
    return tuple(one(word.strip().replace("[;]", "[,]")) for word in words if word.strip())


def _check_result(name: str, result: Any) -> None:
    """Refuse kernels that return arrays: without reference counting the result would silently be another array."""
    from numba.core import types

    if any(isinstance(kind, types.Array) for kind in (result, *getattr(result, "types", ()))):
        raise TypeError(f"the kernel {name} returns an array: fill an array argument instead")


# Dependencies of a compiled kernel


class _UnknownError(Exception):
    """A kernel uses a value that has no digest, so its compiled form cannot be cached."""


def fingerprint(function: Callable[..., Any]) -> str | None:
    """Return a digest of the byte code and constants of a kernel and its callees; None if a value has no digest."""
    digest = hashlib.sha256()
    try:
        _feed_function(digest, function, set())
    except _UnknownError:
        return None
    return digest.hexdigest()[:32]


def _feed_function(digest: Any, function: Any, seen: set[int]) -> None:
    if id(function) in seen:
        return
    seen.add(id(function))
    digest.update(f"function {function.__module__}.{function.__qualname__}".encode())
    _feed(digest, function.__defaults__, function, seen)
    for cell in function.__closure__ or ():
        _feed(digest, cell.cell_contents, function, seen)
    _feed(digest, function.__code__, function, seen)


def _feed(digest: Any, value: Any, function: Any, seen: set[int]) -> None:
    """Add a value that `function` uses. Each kind has its own tag, so that different values never have the same input."""
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic | np.dtype):
        digest.update(f"{type(value).__name__} {value!r};".encode())
    elif value is ...:
        digest.update(b"...;")
    elif isinstance(value, tuple | list):
        digest.update(f"{type(value).__name__} {len(value)};".encode())
        for item in value:
            _feed(digest, item, function, seen)
    elif isinstance(value, frozenset):
        digest.update(f"frozenset {sorted(map(repr, value))};".encode())
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        digest.update(
            f"array {value.dtype!r} {value.shape} {value.flags.writeable};".encode() + value.tobytes()
        )
    elif isinstance(value, python_types.CodeType):
        _feed_code(digest, value, function, seen)
    elif isinstance(value, Kernel):
        digest.update(b"inline;" if value.inline else b"")
        _feed_function(digest, value.py_func, seen)
    elif isinstance(value, Intrinsic):
        digest.update(f"intrinsic {value.signature};".encode())
        _feed_function(digest, value.generate, seen)
    elif isinstance(value, python_types.FunctionType):
        _feed_function(digest, value, seen)
    elif isinstance(value, type | python_types.BuiltinFunctionType | np.ufunc):
        digest.update(f"name {getattr(value, '__module__', '')}.{value.__name__};".encode())
    elif isinstance(value, python_types.ModuleType | Deferred):
        digest.update(f"module {value.__name__};".encode())
    else:
        raise _UnknownError(f"{function.__qualname__} uses {value!r}")


def _feed_code(digest: Any, code: python_types.CodeType, function: Any, seen: set[int]) -> None:
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    digest.update(
        f"code {names!r} {code.co_argcount} {code.co_flags};".encode() + code.co_code + code.co_exceptiontable
    )
    for i, constant in enumerate(code.co_consts):
        # The first constant may be the docstring, which is ignored.
        is_doc = i == 0 and isinstance(constant, str) and constant == function.__doc__
        _feed(digest, None if is_doc else constant, function, seen)
    for name in code.co_names:
        if name in function.__globals__:
            value = function.__globals__[name]
            digest.update(f"global {name} ".encode())
            _feed(digest, value, function, seen)
            for attribute in _attributes(code, name) if isinstance(value, python_types.ModuleType) else ():
                # NumPy functions in kernels are numba's own, and numba's version is part of the key.
                if value.__name__.partition(".")[0] not in ("numpy", "math") and attribute in vars(value):
                    digest.update(f"attribute {attribute} ".encode())
                    _feed(digest, vars(value)[attribute], function, seen)


def _attributes(code: python_types.CodeType, name: str) -> list[str]:
    """Return the attributes that code reads from the global `name`."""
    return sorted(
        {
            after.argval
            for before, after in itertools.pairwise(dis.get_instructions(code))
            if before.opname == "LOAD_GLOBAL"
            and before.argval == name
            and after.opname in ("LOAD_ATTR", "LOAD_METHOD")
        }
    )
