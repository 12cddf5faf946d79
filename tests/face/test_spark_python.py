"""`logwright-python` is the Python of its environment, without Spark's archives of modules that are installed too."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import logwright as lw
from logwright.spark_python import executable, without_archives

MODULES = {"pyspark/__init__.py": "", "pyspark/sql/types.py": "LONG = 8\n"}


def zipped(path: Path, modules: dict[str, str]) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in modules.items():
            archive.writestr(name, text)
    return str(path)


def folder(path: Path, modules: dict[str, str]) -> str:
    for name, text in modules.items():
        path.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        path.joinpath(name).write_text(text)
    return str(path)


def test_zip_of_the_installed_package_is_left_out(tmp_path: Path) -> None:
    installed = folder(tmp_path / "site", MODULES)
    archive = zipped(
        tmp_path / "pyspark.zip",
        MODULES | {"pyspark/sql/tests/test_types.py": "", "pyspark/README.md": "text"},
    )
    assert without_archives(["/first", archive, "/last"], [installed]) == ["/first", "/last"]


@pytest.mark.parametrize(
    "modules",
    [
        MODULES | {"pyspark/sql/types.py": "LONG = 9\n"},
        MODULES | {"pyspark/sql/patched.py": ""},
    ],
    ids=["another byte", "another module"],
)
def test_zip_that_differs_from_the_installed_package_stays(tmp_path: Path, modules: dict[str, str]) -> None:
    archive = zipped(tmp_path / "pyspark.zip", modules)
    assert without_archives([archive], [folder(tmp_path / "site", MODULES)]) == [archive]


def test_zip_is_compared_with_the_package_that_python_would_import(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "pyspark.zip", MODULES)
    other = folder(tmp_path / "other", MODULES | {"pyspark/sql/types.py": "LONG = 9\n"})
    assert without_archives([archive], [other, folder(tmp_path / "site", MODULES)]) == [archive]


def test_zips_that_are_not_spark_s_or_cannot_be_read_stay(tmp_path: Path) -> None:
    installed = folder(tmp_path / "site", MODULES | {"user/__init__.py": ""})
    user = zipped(tmp_path / "user.zip", {"user/__init__.py": ""})
    (tmp_path / "broken").mkdir()
    broken = tmp_path / "broken" / "pyspark.zip"
    broken.write_bytes(b"PK")
    places = [user, str(broken), str(tmp_path / "pyspark.zip"), installed, ""]
    assert without_archives(places, [installed]) == places


def test_zips_of_an_installed_pyspark_are_left_out_unless_another_py4j_is_installed(tmp_path: Path) -> None:
    site = folder(tmp_path / "site", MODULES | {"py4j/__init__.py": "", "py4j-0.10.9.dist-info/METADATA": ""})
    library = tmp_path / "site" / "pyspark" / "python" / "lib"
    library.mkdir(parents=True)
    own, same, other = (
        zipped(library / name, {"py4j/__init__.py": "# not compared\n"})
        for name in ("pyspark.zip", "py4j-0.10.9-src.zip", "py4j-0.10.8-src.zip")
    )
    assert without_archives([own, same, other], [site]) == [other]


def test_jar_of_spark_s_core_is_left_out_and_those_of_users_stay() -> None:
    assert without_archives(["/jars/spark-core_2.13-4.3.0.jar", "/jars/graphs.jar"], []) == [
        "/jars/graphs.jar"
    ]


def test_jar_of_spark_s_core_has_no_python_modules() -> None:
    pyspark = pytest.importorskip("pyspark")
    (jar,) = Path(pyspark.__file__).parent.joinpath("jars").glob("spark-core_*.jar")
    with zipfile.ZipFile(jar) as archive:
        assert [name for name in archive.namelist() if name.endswith((".py", ".pyc"))] == []


@pytest.mark.parametrize("link", [False, True], ids=["command", "link to it"])
def test_pyspark_s_own_archives_are_left_out_and_arguments_and_status_are_kept(
    tmp_path: Path, link: bool
) -> None:
    pyspark = pytest.importorskip("pyspark")
    home = Path(pyspark.__file__).parent
    archives = [
        *home.joinpath("python", "lib").glob("*.zip"),
        *home.joinpath("jars").glob("spark-core_*.jar"),
    ]
    assert len(archives) == 3
    command = Path(executable())
    assert command.name == "logwright-python"
    if link:
        (tmp_path / "linked").symlink_to(command)
        command = tmp_path / "linked"
    code = "import pyspark, py4j, os, sys; print(os.environ['PYTHONPATH'], sys.argv, sys.stdin.read()); sys.exit(7)"
    run = subprocess.run(
        [command, "-c", code, "one", "two words"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, archives), str(tmp_path)])},
        input="the input", capture_output=True, text=True,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (7, "")
    assert run.stdout == f"{tmp_path} ['-c', 'one', 'two words'] the input\n"


SESSION = """
import sys
import pyspark
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
         .config("spark.driver.bindAddress", "127.0.0.1").config("spark.ui.showConsoleProgress", "false").getOrCreate())
print(spark.read.format("logwright").load(sys.argv[1]).count())
print(spark.sparkContext.parallelize([0], 1).map(lambda _: pyspark.__file__).first())
"""


@pytest.mark.spark
def test_session_with_logwright_python_reads_and_imports_the_installed_pyspark(tmp_path: Path) -> None:
    pyspark = pytest.importorskip("pyspark")
    lw.generate("kafka.partition", tmp_path / "orders-0", rows=10, seed=1)
    command = executable()
    assert Path(command).name == "logwright-python"
    run = subprocess.run(
        [sys.executable, "-c", SESSION, str(tmp_path / "orders-0")],
        env={**os.environ, "PYSPARK_PYTHON": command, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert run.stdout.splitlines() == ["10", pyspark.__file__], run.stderr[-3000:]
