"""Packaging: links, wheel, sdist, the zip for Spark, the lock file and the import contracts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import contracts
import grimp
import pyfiles
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("codec", "readers", "writers", "roundtrip", "corpora")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def run(*command: str | Path, cwd: Path, **environ: str) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# --- the tree --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", ROOMS)
def test_top_level_folders_are_linked_subpackages(room: str) -> None:
    link = ROOT / "src" / "logwright" / room
    assert link.is_symlink()
    assert os.readlink(link) == f"../../{room}"
    assert (link / "__init__.py").is_file()


def test_installed_version_is_the_projects() -> None:
    assert metadata.version("logwright") == PROJECT["project"]["version"]


def test_every_module_is_in_a_package() -> None:
    """A folder without `__init__.py` works here, through the link, and is missing from the wheel."""
    skip = {"golden", "__pycache__", "target"}
    for room in (*ROOMS, "src/logwright", "src/pyspark_logwright"):
        for folder, folders, files in os.walk(ROOT / room):
            folders[:] = [name for name in folders if name not in skip]
            if any(name.endswith(".py") for name in files):
                assert "__init__.py" in files, folder


def test_help_lists_every_command() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony
    result = run("make", "--no-print-directory", cwd=ROOT)
    assert set(re.findall(r"^make ([a-z-]+) ", result, re.MULTILINE)) == set(phony[1].split())


def test_make_refuses_an_unsupported_python(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\ntest "$1" = --version && echo Python 3.9.1\nexit 1\n')
    fake.chmod(0o755)
    done = subprocess.run(
        ["make", "test", f"PYTHON={fake}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 2
    assert "needs Python 3.11, 3.12 or 3.13" in done.stderr
    assert "Python 3.9.1" in done.stderr
    assert not (tmp_path / ".venv").exists()


# --- the lock --------------------------------------------------------------------------------------------------------


def test_lock_is_pinned_and_hashed_without_urls() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    assert not re.search(r"^\s*-", re.sub(r"^ +--hash=.*$", "", text, flags=re.MULTILINE), re.MULTILINE)
    entries = re.split(r"\n(?=\S)", text.strip())
    for entry in entries:
        assert re.match(r"[\w.-]+==\S+ ", entry), entry
        assert "--hash=sha256:" in entry, entry


def test_lock_covers_all_dependencies() -> None:
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    project = PROJECT["project"]
    expected = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
        *PROJECT["build-system"]["requires"],
    ]
    for line in expected:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        assert name in locked, f"{name} is not in requirements.lock: run `make lock`"
        assert requirement.specifier.contains(locked[name]), (
            f"{line}, but {locked[name]} is locked: run `make lock`"
        )


# --- build artefacts ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the files packaging sees, with the links, and a golden case it must leave out."""
    root = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "LICENSE", "MANIFEST.in", "README.md"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, root)
    ignore = shutil.ignore_patterns("golden", "__pycache__", "target", "*.egg-info")
    for name in (*ROOMS, "src", "tests"):
        shutil.copytree(ROOT / name, root / name, symlinks=True, ignore=ignore)
    case = root / "corpora" / "golden" / "kafka" / "case"
    case.mkdir(parents=True)
    for name in ("00000000000000000000.log", "expected.json", "script.py", "page.html"):
        (case / name).touch()
    return root


def python_files(base: Path) -> set[str]:
    """Return the modules a user must get, as paths in site-packages."""
    actual = set()
    for package in ("logwright", "pyspark_logwright"):
        for folder, _, files in os.walk(base / "src" / package, followlinks=True):
            inside = Path(folder).relative_to(base / "src")
            if "golden" not in inside.parts:
                actual |= {str(inside / name) for name in files if name.endswith((".py", ".java"))}
                actual |= {str(inside / name) for name in files if name in ("pom.xml", "py.typed")}
    return actual


def import_check(place: str) -> str:
    return (
        "import logwright, logwright.codec.registry, importlib.metadata as m\n"
        f"assert {place!r} in logwright.__file__ and {place!r} in logwright.codec.__file__, logwright.__file__\n"
        f"assert m.version('logwright') == {PROJECT['project']['version']!r}\n"
    )


@pytest.fixture(scope="module")
def wheel(checkout: Path) -> Path:
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", "dist", ".", cwd=checkout)
    (built,) = (checkout / "dist").glob("*.whl")
    return built


@pytest.mark.extended
def test_wheel_has_every_module_and_no_test_data(wheel: Path, checkout: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        assert not any((entry.external_attr >> 16) & 0o170000 == 0o120000 for entry in archive.infolist())
        entry_points = next(name for name in names if name.endswith("entry_points.txt"))
        assert "logwright = logwright.cli:main" in archive.read(entry_points).decode()
        (script,) = (name for name in names if name.endswith(".data/scripts/logwright-python"))
        assert archive.read(script).startswith(b"#!/bin/sh\n")
        assert (archive.getinfo(script).external_attr >> 16) & 0o111 == 0o111
    assert python_files(checkout) <= names
    assert "logwright/py.typed" in names
    assert not [name for name in names if "golden" in name or "tests" in name or "__pycache__" in name]
    assert {name.split("/")[0] for name in names - {script} if ".dist-info/" not in name} <= {
        "logwright",
        "pyspark_logwright",
    }


@pytest.mark.extended
def test_spark_zip_imports_and_is_reproducible(wheel: Path, tmp_path: Path) -> None:
    zipped = pyfiles.pyfiles(wheel)
    assert zipped.name == f"logwright-{PROJECT['project']['version']}-py-files.zip"
    first = zipped.read_bytes()
    assert pyfiles.pyfiles(wheel).read_bytes() == first
    with zipfile.ZipFile(zipped) as archive:
        assert {name.split("/")[0] for name in archive.namelist() if ".dist-info/" not in name} == {
            "logwright",
            "pyspark_logwright",
        }
    run(sys.executable, "-c", import_check(zipped.name), cwd=tmp_path, PYTHONPATH=str(zipped))


@pytest.mark.extended
def test_spark_submit_job_runs_from_the_zip(wheel: Path, tmp_path: Path) -> None:
    script = pyfiles.job(wheel)
    assert script.name == "logwright_repair.py"
    result = run(sys.executable, script, "--help", cwd=tmp_path, PYTHONPATH=str(pyfiles.pyfiles(wheel)))
    assert "--from PATH" in result
    assert "Exit status: 0 nothing is lost, 3 something is" in result


@pytest.fixture(scope="module", params=["3.11", "3.12", "3.13"])
def fresh_python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Create an empty virtual environment of an available Python version."""
    version = request.param
    pyenv = sorted(str(path) for path in Path.home().glob(".pyenv/versions/*/bin"))
    path = os.pathsep.join([*pyenv, os.environ.get("PATH", "")])
    interpreter = sys.executable if version == "{}.{}".format(*sys.version_info) else None
    interpreter = interpreter or shutil.which(f"python{version}", path=path)
    if interpreter is None:
        pytest.skip(f"no python{version} here")
    root = tmp_path_factory.mktemp(f"python{version}")
    run(interpreter, "-m", "venv", root, cwd=root)
    yield root / "bin" / "python"
    shutil.rmtree(root)


@pytest.mark.nightly
def test_wheel_built_from_the_sdist_installs_and_imports(
    checkout: Path, fresh_python: Path, tmp_path: Path
) -> None:
    # Without --wheel or --sdist, `build` builds the wheel from the sdist.
    run(sys.executable, "-m", "build", "--no-isolation", "-o", tmp_path, ".", cwd=checkout)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    assert not [
        m.name for m in members if m.issym() or m.islnk() or "golden" in m.name or "/tests/" in m.name
    ]
    (built,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        assert python_files(checkout) <= set(archive.namelist())
    runtime = [line.split(";")[0] for line in PROJECT["project"]["dependencies"]]
    run(fresh_python, "-m", "pip", "install", "-q", *runtime, built, cwd=tmp_path)
    run(fresh_python, "-c", import_check("site-packages"), cwd=tmp_path)
    assert "Usage" in run(fresh_python.parent / "logwright", "--help", cwd=tmp_path)
    command = (fresh_python.parent / "logwright-python", "-c", "import sys; print(sys.executable)")
    assert run(*command, cwd=tmp_path) == f"{fresh_python}\n"


# --- the contracts ---------------------------------------------------------------------------------------------------


def broken(kind: type[contracts._ImportContract], *imports: str, **options: object) -> list[str]:
    """Return the imports a contract rejects in a made-up package."""
    graph = grimp.ImportGraph()
    for line in imports:
        importer, imported = line.split(" -> ")
        for module in (importer, imported):
            while module:
                graph.add_module(module)
                module = module.rpartition(".")[0]
        graph.add_import(importer=importer, imported=imported, line_number=1, line_contents="import")
    return [f"{a} -> {b}" for a, b, _ in kind.faults(SimpleNamespace(**options), graph)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("h.codec.kafka.formats.log.codec -> h.codec.leveldb.formats.table.codec", False),
        ("h.codec.kafka.formats.log.codec -> h.codec.kafka.formats.log.layout", True),
        ("h.codec.kafka.formats.log.codec -> h.codec.base", True),
        ("h.codec.base -> h.codec.kafka.formats.log.layout", False),
        ("h.codec.registry -> h.codec.kafka", True),
        ("h.codec.kafka.formats.log.codec -> h.codec.registry", False),
        ("h.readers.stream -> h.codec.kafka.formats.log.layout", False),
        ("h.readers.stream -> h.codec.registry", True),
        ("h.corpora.kafka -> h.codec.kafka.formats.log.layout", True),
        ("h.codec.kafka.formats.log.codec -> h.codec.kernels.compress.gzip", True),
    ],
)
def test_contract_forbids_imports_between_systems(line: str, allowed: bool) -> None:
    systems = (
        "h.codec.registry -> h.codec.kafka.formats.log.codec",
        "h.codec.registry -> h.codec.leveldb.formats.table.codec",
    )
    actual = broken(
        contracts.SystemsContract,
        *systems,
        line,
        package="h.codec",
        registry="h.codec.registry",
        shared=["h.codec.kernels"],
        blind=["h.readers"],
    )
    assert actual == ([] if allowed else [line])


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("h.readers.stream -> h.api", False),
        ("h.readers.stream -> h", False),
        ("h.readers.stream -> h.codec.base", True),
        ("h.readers.stream -> numpy", True),
        ("h.api -> h.readers.stream", True),
        ("h.cli.dump -> h.api", True),
    ],
)
def test_contract_forbids_rooms_to_import_from_the_house(line: str, allowed: bool) -> None:
    rooms = ["h.codec", "h.readers"]
    actual = broken(contracts.HouseContract, line, root="h", rooms=rooms)
    assert actual == ([] if allowed else [line])
