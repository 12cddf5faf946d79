"""Java for the oracles: jars by Maven, classes by javac, and one long-lived JVM that answers JSON lines.

Fetched and compiled files are in the user's cache, in a directory named by a hash of its sources that is created by one rename:
concurrent or killed runs leave nothing incomplete.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import platformdirs

from logwright.codec.fault import LogwrightError

# Options of short-lived JVMs: fast start and small memory, not peak speed.
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.awt.headless=true")

JAVA_AT_LEAST = 17

SHARED = Path(__file__).parent / "java"
"""Sources shared by the oracles of all systems."""

# Seconds until a JVM is killed.
PATIENCE = 10.0


class OracleError(LogwrightError, RuntimeError):
    """The real system is not available: no Java, no jars, the JVM ended, or there was no answer."""


class JavaError(OracleError):
    """The real system threw an exception: see `.java_class`, `.java_message`, `.causes` and `.trace`."""

    def __init__(self, error: dict[str, Any]) -> None:
        self.java_class: str = error["class"]
        self.java_message: str = error.get("message") or ""
        self.causes: list[str] = error.get("causes") or []
        self.trace: str = error.get("trace") or ""
        super().__init__(
            "; caused by ".join([": ".join(filter(None, [self.java_class, self.java_message])), *self.causes])
        )


@functools.cache
def why_not() -> str | None:
    """Return why Java code cannot be built and run here; None if it can."""
    for name in ("java", "javac"):
        if _tool(name) is None:
            return f"needs a JDK {JAVA_AT_LEAST} or newer, and there is no `{name}`: install one or set JAVA_HOME"
    java = command("java")
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"needs Java {JAVA_AT_LEAST} or newer, and {java} does not start ({error})"
    version = re.search(r'version "(?:1\.)?(\d+)', output)
    if version is None or int(version[1]) < JAVA_AT_LEAST:
        return f"needs Java {JAVA_AT_LEAST} or newer, and {java} says: {output.splitlines()[0] if output else 'nothing'}"
    return None


def _tool(name: str) -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home, "bin", name))) if home else shutil.which(name)


def command(name: str) -> str:
    """Return the path of `java` or `javac`."""
    path = _tool(name)
    if path is None:
        raise OracleError(f"there is no `{name}`", advice="Install a JDK 17 or set JAVA_HOME")
    return path


def cache_dir() -> Path:
    """Return the cache directory of jars and compiled classes."""
    return platformdirs.user_cache_path("logwright") / "oracles"


class Project:
    """A `pom.xml` that names jars, and folders of Java sources compiled against them."""

    def __init__(self, pom: Path, *sources: Path) -> None:
        self.pom = pom
        self._sources = sources

    def why_not(self) -> str | None:
        """Return why it cannot be built; None after building it (the first time takes tens of seconds)."""
        reason = why_not()
        if reason is None:
            try:
                self.classpath()
            except OracleError as error:
                reason = " ".join(str(error).split())
        return reason

    def classpath(self) -> str:
        """Return the class path, after fetching and compiling what is missing."""
        jars = self.jars()
        return os.pathsep.join([str(self._classes(jars)), *_jars_of(jars)])

    def jars(self) -> Path:
        target = cache_dir() / _hash([self.pom]) / "jars"
        if not target.is_dir():
            maven = shutil.which("mvn")
            if maven is None:
                raise OracleError("needs Maven to fetch the jars, and there is no `mvn`: install Maven")
            with _alone():
                if not target.is_dir():
                    self._fetch(maven, target)
        return target

    def _fetch(self, maven: str, target: Path) -> None:
        with _appearing(target) as (_, staging):
            run = subprocess.run(
                [
                    *(maven, "-q", "-B", "-ntp", "-f", self.pom, "dependency:copy-dependencies"),
                    *("-DincludeScope=runtime", f"-DoutputDirectory={staging}"),
                ],
                capture_output=True,
                text=True,
                timeout=1200,
            )
            if run.returncode:
                error = next(
                    (line for line in run.stdout.splitlines() if "ERROR" in line), run.stderr.strip()
                )
                raise OracleError(
                    f"Maven could not fetch the jars of {self.pom.parent.name} (is there a network?): {error[:300]}"
                )

    def _classes(self, jars: Path) -> Path:
        sources = sorted(path for folder in self._sources for path in folder.glob("*.java"))
        target = jars.parent / f"classes-{_hash(sources)}"
        if not target.is_dir():
            with _appearing(target) as (directory, staging):
                classpath = os.pathsep.join(_jars_of(jars))
                run = subprocess.run(
                    [command("javac"), "-nowarn", "-proc:none", "-cp", classpath, "-d", staging, *sources],
                    capture_output=True,
                    text=True,
                    timeout=600,
                    cwd=directory,
                )
                if run.returncode:
                    raise OracleError(
                        f"javac refused {', '.join(path.name for path in sources)}: {run.stderr[-2000:]}"
                    )
        return target


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Run the block in one process at a time: several Mavens damage their common repository."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    directory = os.open(cache_dir(), os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def _jars_of(folder: Path) -> list[str]:
    return sorted(map(str, folder.glob("*.jar")))


def _hash(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


class _appearing:
    """A staging directory that is renamed to its target after the block succeeds. The first process wins."""

    def __init__(self, target: Path) -> None:
        self._target = target

    def __enter__(self) -> tuple[Path, Path]:
        self._target.parent.mkdir(parents=True, exist_ok=True)
        self._work = tempfile.TemporaryDirectory(prefix=".making-", dir=self._target.parent)
        staging = Path(self._work.name, "made")
        staging.mkdir()
        return Path(self._work.name), staging

    def __exit__(self, kind: object, *rest: object) -> None:
        try:
            if kind is None:
                Path(self._work.name, "made").rename(self._target)
        except OSError:
            if not self._target.is_dir():
                raise
        finally:
            self._work.cleanup()


class Session:
    """A JVM that answers each JSON line with JSON lines. It starts with the first request.

    Its log goes to a file that is quoted when it dies. It ends with this process, because then its stdin ends; a process
    forked from this one starts its own. `folder`: its working directory.
    """

    def __init__(self, project: Project, main: str, *flags: str, folder: Path | None = None) -> None:
        self._project = project
        self._main = main
        self._flags = flags
        self._folder = folder
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._log: IO[bytes] | None = None

    def ask(self, op: str, *, timeout: float = 120.0, **fields: Any) -> tuple[list[Any], Any]:
        """Return the items and the result of an operation. Raises `JavaError` for an exception, `OracleError` without an answer."""
        request = json.dumps({"op": op, **fields}).encode() + b"\n"
        with self._lock:
            process = self._running()
            late = threading.Timer(timeout, process.kill)
            late.start()
            try:
                items, last = self._exchange(process, request)
            except (OSError, EOFError, ValueError):
                self._drop(process)
                raise OracleError(
                    f"the JVM ended, or was ended after {timeout:g} s, in `{op}`. Last words: {self._last_words()}"
                ) from None
            except BaseException:
                # The wait was interrupted: the rest of the answer must not mix with the next request.
                self._drop(process)
                raise
            finally:
                late.cancel()
        if "error" in last:
            raise JavaError(last["error"])
        return items, last["done"]

    @staticmethod
    def _exchange(process: subprocess.Popen[bytes], request: bytes) -> tuple[list[Any], dict[str, Any]]:
        """Read the items and the last line of an answer. Raises for a broken pipe or an incomplete line."""
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request)
        process.stdin.flush()
        items: list[Any] = []
        for line in process.stdout:
            answer = json.loads(line)
            if "item" not in answer:
                return items, answer
            items.append(answer["item"])
        raise EOFError

    def _drop(self, process: subprocess.Popen[bytes]) -> None:
        self._process = None
        process.kill()
        self._release(process)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None or self._owner != os.getpid():
            if self._log is not None:
                self._log.close()
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 lives as long as the process
            self._process = subprocess.Popen(
                [command("java"), *QUICK, *self._flags, "-cp", self._project.classpath(), self._main],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                cwd=self._folder,
            )
            self._owner = os.getpid()
            atexit.register(self.close)
        return self._process

    def _last_words(self) -> str:
        assert self._log is not None
        self._log.seek(0)
        return self._log.read()[-2000:].decode(errors="replace").strip() or "none"

    @staticmethod
    def _release(process: subprocess.Popen[bytes]) -> None:
        """Wait for an ending process, and close its pipes."""
        assert process.stdin is not None
        assert process.stdout is not None
        # Closing flushes into a pipe that may be broken.
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def close(self) -> None:
        """Stop the JVM. The next request starts another."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        self._release(process)
        assert self._log is not None
        self._log.close()
        self._log = None


class Releases:
    """A program for several releases, each in another JVM. Folders named after the versions, below `poms`, have the `pom.xml`."""

    def __init__(self, poms: Path, main: str, *flags: str, sources: Sequence[Path] = ()) -> None:
        self._poms, self._sources = poms, sources or (poms, SHARED)
        self._main, self._flags = main, flags
        self._sessions: dict[str, Session] = {}

    def _project(self, version: str) -> Project:
        return Project(self._poms / version / "pom.xml", *self._sources)

    def why_not(self, version: str) -> str | None:
        """Return why this release cannot be used here; None if it can. The first call fetches its jars."""
        return self._project(version).why_not()

    def session(self, version: str) -> Session:
        """Return the JVM of a release."""
        if version not in self._sessions:
            self._sessions[version] = Session(self._project(version), self._main, *self._flags)
        return self._sessions[version]
