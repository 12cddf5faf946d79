"""The oracles' use of Java, tested without Java: a fake JDK and a fake Maven, and their failures."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logwright.roundtrip.oracles import java

# Says its version, or answers as its main class says.
JAVA = """
import json, os, sys, time
if sys.argv[1] == "-version":
    sys.exit(print('openjdk version "17.0.1"', file=sys.stderr))
stay = False
for line in sys.stdin:
    request = json.loads(line)
    if request["op"] == "die":
        sys.exit("no more")
    if request["op"] == "half":
        sys.stdout.write('{"ite')
        sys.stdout.flush()
        os._exit(1)
    if request["op"] == "sleep":
        time.sleep(60)
    if request["op"] == "stay":
        stay = True
    if request["op"] == "throw":
        print(json.dumps({"error": {"class": "a.B", "message": "bad", "causes": ["c.D: worse"], "trace": "at"}}))
    else:
        for item in request.get("items", []):
            print(json.dumps({"item": item}))
        print(json.dumps({"done": [sys.argv[1:], os.getpid()]}))
    sys.stdout.flush()
while stay:
    time.sleep(1)
"""

JAVAC = """
import pathlib, sys
sources = [one for one in sys.argv if one.endswith(".java")]
if "bad" in pathlib.Path(sources[0]).read_text():
    sys.exit("bad source")
pathlib.Path(sys.argv[sys.argv.index("-d") + 1], "Made.class").write_text("made")
"""

MVN = """
import pathlib, sys
pom = pathlib.Path(sys.argv[sys.argv.index("-f") + 1]).read_text()
if "unreachable" in pom:
    print("[ERROR] could not resolve")
    sys.exit(1)
out = next(one for one in sys.argv if one.startswith("-DoutputDirectory=")).split("=")[1]
pathlib.Path(out, "one.jar").write_text("jar")
"""


def script(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{body}")
    path.chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of tools that is the whole PATH, with a separate cache."""
    tools = tmp_path / "jdk" / "bin"
    for name, body in {"java": JAVA, "javac": JAVAC, "mvn": MVN}.items():
        script(tools / name, body)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "cache_dir", lambda: tmp_path / "cache")
    java.why_not.cache_clear()
    yield tools
    java.why_not.cache_clear()


@pytest.fixture
def project(tools: Path, tmp_path: Path) -> java.Project:
    (tmp_path / "src").mkdir()
    (tmp_path / "pom.xml").write_text("<project/>")
    (tmp_path / "src" / "One.java").write_text("good")
    return java.Project(tmp_path / "pom.xml", tmp_path / "src")


def test_cache_is_in_the_users_directory() -> None:
    assert java.cache_dir().name == "oracles"


def test_project_is_built_once(project: java.Project, tools: Path, tmp_path: Path) -> None:
    assert project.why_not() is None
    classes, jar = project.classpath().split(":")
    assert Path(classes, "Made.class").read_text() == "made"
    assert Path(jar).read_text() == "jar"
    # From now on without tools.
    (tools / "mvn").unlink()
    script(tools / "javac", "import sys; sys.exit('again')")
    assert project.classpath() == f"{classes}:{jar}"
    # A changed source is recompiled.
    (tmp_path / "src" / "One.java").write_text("better")
    with pytest.raises(java.OracleError, match=r"javac refused One\.java: again"):
        project.classpath()


def test_java_home_has_precedence(
    project: java.Project, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "other" / "bin" / "java", JAVA)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "other"))
    assert java.command("java") == str(tmp_path / "other" / "bin" / "java")
    assert (
        project.why_not() == "needs a JDK 17 or newer, and there is no `javac`: install one or set JAVA_HOME"
    )
    with pytest.raises(java.OracleError, match="no `javac`"):
        java.command("javac")


@pytest.mark.parametrize(
    ("tool", "body", "says"),
    [
        ("java", None, "no `java`"),
        ("java", "import sys; print('openjdk version \"11.0.2\"', file=sys.stderr)", 'version "11.0.2"'),
        ("java", "import sys; print('java version \"1.8.0_1\"', file=sys.stderr)", 'version "1.8.0_1"'),
        ("java", "", "says: nothing"),
        ("java", "#" * 5, "says: nothing"),
        ("mvn", None, "no `mvn`"),
        ("mvn", "import sys; sys.exit('no such host')", "is there a network.*no such host"),
        ("mvn", "import sys; print('[INFO] x\\n[ERROR] no such host'); sys.exit(1)", "no such host"),
        ("javac", "import sys; sys.exit('what')", "javac refused.*what"),
    ],
)
def test_reason_for_unavailability_is_one_sentence(
    project: java.Project, tools: Path, tool: str, body: str | None, says: str
) -> None:
    if body is None:
        (tools / tool).unlink()
    else:
        script(tools / tool, body)
    reason = project.why_not()
    assert reason is not None
    assert re.search(says, reason)
    assert "\n" not in reason


def test_java_that_does_not_start(project: java.Project, tools: Path) -> None:
    (tools / "java").write_text("#!/nowhere/at/all\n")
    reason = project.why_not()
    assert reason is not None
    assert "does not start" in reason


def test_failed_build_leaves_no_files(project: java.Project, tmp_path: Path) -> None:
    (tmp_path / "pom.xml").write_text("<unreachable/>")
    with pytest.raises(java.OracleError, match="could not resolve"):
        project.classpath()
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def test_concurrent_build_that_finishes_first(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with java._appearing(target) as (_, result):
        (result / "mine").touch()
        target.mkdir()
        (target / "theirs").touch()
    assert [path.name for path in target.iterdir()] == ["theirs"]
    blocked = tmp_path / "blocked"
    with pytest.raises(OSError), java._appearing(blocked):
        blocked.write_text("a file in the way")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blocked", "target"]


@pytest.fixture
def session(project: java.Project) -> Iterator[java.Session]:
    session = java.Session(project, "Main", "-Dx=y")
    yield session
    session.close()


def test_session_keeps_one_process_until_it_is_closed(session: java.Session) -> None:
    items, (arguments, process) = session.ask("echo", items=[1, {"two": None}])
    assert items == [1, {"two": None}]
    assert arguments[:4] == list(java.QUICK)
    assert arguments[4] == "-Dx=y"
    assert arguments[-1] == "Main"
    assert session.ask("echo")[1][1] == process
    session.close()
    session.close()
    assert session.ask("echo")[1][1] != process


def test_hanging_jvm_is_killed(session: java.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "PATIENCE", 0.2)
    process = session.ask("stay")[1][1]
    session.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_java_exceptions_are_raised(session: java.Session) -> None:
    with pytest.raises(java.JavaError) as caught:
        session.ask("throw")
    assert str(caught.value) == "a.B: bad; caused by c.D: worse"
    assert (caught.value.java_class, caught.value.java_message) == ("a.B", "bad")
    assert session.ask("echo")[0] == []


@pytest.mark.parametrize(
    ("op", "timeout", "says"), [("die", 60, "no more"), ("half", 60, "none"), ("sleep", 0.5, "none")]
)
def test_jvm_that_exits_is_restarted(session: java.Session, op: str, timeout: float, says: str) -> None:
    with pytest.raises(java.OracleError, match=f"Last words: {says}"):
        session.ask(op, timeout=timeout)
    assert session.ask("echo")[0] == []


def test_interrupted_response_is_not_mixed_with_the_next(
    session: java.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = json.loads

    def interrupted(*args: Any) -> Any:
        monkeypatch.setattr(json, "loads", loads)
        raise KeyboardInterrupt

    monkeypatch.setattr(json, "loads", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.ask("echo", items=["old"])
    assert session.ask("echo", items=["new"])[0] == ["new"]
