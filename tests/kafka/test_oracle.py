"""Requests and parsed answers of the Kafka oracle, without Kafka: a session and a broker with fixed answers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logwright.roundtrip.oracles import kafka, kafka_broker
from logwright.roundtrip.oracles.java import JavaError, OracleError
from logwright.roundtrip.oracles.kafka_broker import Broker, BrokerError, ConsumeError

ERROR = {"class": "a.CorruptRecordException", "message": "bad", "causes": [], "trace": "at x"}


class Session:
    """Answers by operation; `asked` has the requests."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[dict[str, Any]] = []

    def ask(self, op: str, **fields: Any) -> tuple[list[Any], Any]:
        self.asked.append({"op": op, **fields})
        answer = self.answers[op]
        answered: tuple[list[Any], Any] = answer(**fields) if callable(answer) else answer
        return answered


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    fake_session = Session()
    monkeypatch.setattr(kafka, "SESSION", fake_session)
    monkeypatch.setattr(kafka_broker, "SESSION", fake_session)
    return fake_session


def batch(*records: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"base_offset": 5, "magic": 2, "timestamp_type": "CreateTime", "records": list(records), **more}


def record(offset: int, key: str | None = None, value: str | None = "7631") -> dict[str, Any]:
    return {
        "offset": offset,
        "timestamp": 9,
        "key": key,
        "value": value,
        "headers": [["68", None], ["69", "0a"]],
    }


# Files


def test_oracle_decodes_keys_values_and_headers(session: Session, tmp_path: Path) -> None:
    session.answers["batches"] = lambda **_: ([batch(record(5)), {"base_offset": 6}], None)
    packed = kafka.batches(tmp_path / "x.log")
    assert packed[0]["records"][0] == {
        "offset": 5, "timestamp": 9, "key": None, "value": b"v1", "headers": [(b"h", None), (b"i", b"\n")],
    }  # fmt: skip
    assert session.asked == [{"op": "batches", "path": str(tmp_path / "x.log"), "records": True}]
    kafka.batches(tmp_path / "x.log", records=False)
    assert session.asked[1]["records"] is False


def test_records_of_a_directory_are_flattened(session: Session, tmp_path: Path) -> None:
    for name in ("2.log", "1.log", "1.index"):
        (tmp_path / name).touch()
    session.answers["batches"] = lambda path, **_: ([batch(record(int(Path(path).stem)))], None)
    rows = kafka.records(tmp_path)
    assert [row["offset"] for row in rows] == [1, 2]
    assert (rows[0]["timestamp_type"], rows[0]["batch"]["base_offset"]) == ("CreateTime", 5)
    assert [row["offset"] for row in kafka.records(tmp_path / "2.log")] == [2]
    session.answers["batches"] = lambda **_: ([batch(record(1), error=ERROR)], None)
    with pytest.raises(JavaError, match=r"a\.CorruptRecordException: bad"):
        kafka.records(tmp_path / "2.log")


def test_summary_of_a_log(session: Session, tmp_path: Path) -> None:
    session.answers["summary"] = ([], {"records": 3, "valid": True})
    assert kafka.summary(tmp_path / "x.log") == {"records": 3, "valid": True}


def test_batches_are_built_from_hexadecimal(session: Session) -> None:
    session.answers["build"] = ([], "0aff")
    spec = {
        "records": [{"key": b"\1", "value": None, "headers": ((memoryview(b"h"), bytearray(b"i")),)}],
        "magic": 1,
    }
    assert kafka.build(spec, {}) == b"\x0a\xff"
    assert session.asked[0]["batches"] == [
        {"records": [{"key": "01", "value": None, "headers": [["68", "69"]]}], "magic": 1},
        {},
    ]


def test_arguments_that_recreate_a_batch() -> None:
    head: dict[str, Any] = dict.fromkeys(kafka._SPEC)
    head |= {"magic": 2, "base_offset": 5, "producer_id": -1}
    plain = {"magic": 2, "base_offset": 5, "producer_id": -1}
    assert kafka.spec_of({**head, "is_control": False, "records": [1]}) == {**plain, "records": [1]}
    marker = {"control_type": "COMMIT", "timestamp": 4, "value": b"x"}
    assert kafka.spec_of({**head, "is_control": True, "records": [marker]})["control"] == {
        "type": "COMMIT", "timestamp": 4, "value": b"x",
    }  # fmt: skip
    marker = {"control_type": "ABORT", "timestamp": 4, "coordinator_epoch": 3}
    assert kafka.spec_of({**head, "is_control": True, "records": [marker]})["control"] == {
        "type": "ABORT", "timestamp": 4, "coordinator_epoch": 3,
    }  # fmt: skip


def test_dump_tool_gets_copies_of_indexes(session: Session, tmp_path: Path) -> None:
    """It truncates an index with a partial last entry; its messages name the original."""
    log, index, lone = tmp_path / "1.log", tmp_path / "1.index", tmp_path / "2.timeindex"
    for path in (log, index, lone):
        path.write_bytes(b"original")

    def cut(args: list[str], **_: Any) -> tuple[list[Any], Any]:
        arguments = [Path(word) for word in args[1].split(",")]
        assert arguments[0] == log
        assert [name.name for name in arguments[1:]] == ["1.index", "2.timeindex"]
        assert sorted(path.name for path in arguments[1].parent.iterdir()) == ["1.index", "1.log"]
        assert arguments[1].with_suffix(".log").resolve() == log
        arguments[1].write_bytes(b"")
        return [], {"out": f"Dumping {arguments[1]}\n", "err": "mismatch\n", "status": 0}

    session.answers["dump"] = cut
    assert kafka.dump([log, index, lone], "--deep-iteration") == f"Dumping {index}\nmismatch\n"
    assert index.read_bytes() == b"original"
    assert session.asked[0]["args"][2:] == ["--deep-iteration"]


def test_failing_tool_is_an_error(session: Session, tmp_path: Path) -> None:
    session.answers["dump"] = ([], {"out": "half", "err": "no such file", "status": 1})
    with pytest.raises(OracleError, match="ended with status 1: no such file"):
        kafka.dump(tmp_path / "1.log")
    assert kafka.dump(str(tmp_path / "1.log"), check=False) == "halfno such file"
    session.answers["dump"] = ([], {"out": "half", "err": "", "status": 1})
    with pytest.raises(OracleError, match="ended with status 1: half"):
        kafka.dump(tmp_path / "1.log")


def test_checks_get_copies_of_all_files_but_logs(session: Session, tmp_path: Path) -> None:
    place = tmp_path / "orders-0"
    (place / "folder").mkdir(parents=True)
    for name in ("1.log", "1.index", "leader-epoch-checkpoint"):
        (place / name).write_bytes(b"x")

    def checked(dir: str) -> tuple[list[Any], Any]:
        copy = Path(dir)
        assert sorted(path.name for path in copy.iterdir()) == ["1.index", "leader-epoch-checkpoint"]
        assert copy != place
        item = {"file": "1.index", "class": "a.Corrupt", "message": f"in {copy}/1.index"}
        return [{"file": "leader-epoch-checkpoint"}, item, {**item, "message": None}], None

    session.answers["sanity"] = checked
    assert [problem["message"] for problem in kafka.sanity(place)] == [f"in {place}/1.index", ""]


def test_derived_files_are_created_in_a_copy(session: Session, tmp_path: Path) -> None:
    place = tmp_path / "orders-0"
    place.mkdir()
    (place / "1.log").write_bytes(b"log")
    (place / "1.index").write_bytes(b"old")

    def load(dir: str, config: dict[str, str], **_: Any) -> tuple[list[Any], Any]:
        assert config == {"index.interval.bytes": "7", "segment.index.bytes": "10485760", "retention.ms": "1"}
        assert [path.name for path in Path(dir).iterdir()] == ["1.log"]
        for name in ("1.index", "1.snapshot", "leader-epoch-checkpoint", "partition.metadata"):
            Path(dir, name).write_bytes(name.encode())
        return [], {"log_end_offset": 5}

    session.answers["load"] = load
    assert kafka.rebuild(place, 7, config={"retention.ms": "1"}) == {
        name: name.encode() for name in ("1.index", "1.snapshot", "leader-epoch-checkpoint")
    }
    assert (place / "1.index").read_bytes() == b"old"
    asked = session.asked[0]
    assert (asked["clean"], asked["recovery_point"], asked["log_start_offset"]) == (False, 0, 0)


def test_oracle_reads_snapshots_and_hash_map_order(session: Session, tmp_path: Path) -> None:
    session.answers["hash_map_order"] = ([], (3, 1))
    assert kafka.hash_map_order({1: "a", 3: "b"}, removed=range(2)) == [3, 1]
    assert session.asked[0] == {"op": "hash_map_order", "ids": [1, 3], "removed": [0, 1], "cleared": []}
    session.answers["read_snapshot"] = ([], ({"producer_id": 4},))
    assert kafka.read_snapshot(tmp_path / "1.snapshot") == [{"producer_id": 4}]

    def write(path: str, entries: list[dict[str, int]]) -> tuple[list[Any], Any]:
        Path(path).write_bytes(repr(entries).encode())
        return [], None

    session.answers["write_snapshot"] = write
    assert kafka.write_snapshot([{"producer_id": 4}]) == b"[{'producer_id': 4}]"


def test_reason_why_kafka_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Project:
        def why_not(self) -> str | None:
            return "needs a JDK"

    monkeypatch.setattr(kafka, "PROJECT", Project())
    assert kafka.available() == "needs a JDK"


# Broker

STARTED = "INFO KafkaRaftServer -  Kafka Server started\n"
ANY_ID = "AAECAwQFBgcICQoLDA0ODw"

JAVA = """
import pathlib, signal, sys, time
turn = sorted(pathlib.Path(__file__).parent.glob("turn-*"))[0]
text = turn.read_text()
turn.unlink()
signal.signal(signal.SIGTERM, signal.SIG_IGN if "stubborn" in text else lambda *_: sys.exit(0))
print(text, flush=True)
if "ends" in text:
    sys.exit(1)
while sys.stdin.buffer.read(1):
    pass
"""


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set the output of the broker's process, start by start. It keeps running unless the output has the word `ends`."""
    place = tmp_path / "fake"
    place.mkdir()
    (place / "java").write_text(f"#!{sys.executable}\n{JAVA}")
    (place / "java").chmod(0o755)

    class Project:
        def classpath(self) -> str:
            return "all.jar"

    monkeypatch.setattr(kafka_broker, "command", lambda name: str(place / name))
    monkeypatch.setattr(kafka_broker, "PROJECT", Project())

    def turns(*texts: str) -> None:
        for number, text in enumerate(texts):
            (place / f"turn-{number}").write_text(text)

    turns(STARTED)
    return turns


@pytest.fixture
def broker(session: Session, java: Any) -> Iterator[Broker]:
    def formatted(dirs: list[str], **_: Any) -> tuple[list[Any], Any]:
        for path in map(Path, dirs):
            path.mkdir(exist_ok=True)
            (path / "meta.properties").write_text(f"version=1\ndirectory.id=id-of-{path.name}\n")
        return [], None

    session.answers["format"] = formatted
    with Broker({"log.flush.interval.messages": "1"}) as directory:
        yield directory


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    place = tmp_path / "orders-3"
    place.mkdir()
    (place / "1.log").write_bytes(b"log")
    (place / "partition.metadata").write_text(f"version: 0\ntopic_id: {ANY_ID}")
    return place


def test_broker_starts_and_stops(broker: Broker, session: Session, java: Any) -> None:
    broker.start()
    config = dict(line.split("=", 1) for line in (broker.home / "server.properties").read_text().splitlines())
    assert config["log.flush.interval.messages"] == "1"
    assert config["advertised.listeners"] == f"PLAINTEXT://{broker.bootstrap}"
    assert config["log.dirs"] == str(broker.home / "logs")
    with pytest.raises(OracleError, match="running already"):
        broker.start()
    broker.stop()
    for act in (broker.stop, broker.kill, lambda: broker.offsets("orders")):
        with pytest.raises(OracleError, match="not running"):
            act()
    java(STARTED)
    broker.start()
    assert [question["op"] for question in session.asked] == ["format", "format", "format"], (
        "topics only the first time"
    )


@pytest.mark.parametrize("busy", [1, 3])
def test_occupied_port_is_replaced(broker: Broker, java: Any, busy: int) -> None:
    taken = "ERROR SocketServer - ends\njava.net.BindException: in use\n\tat x.Y\n"
    java(*[taken] * busy, STARTED)
    if busy == 1:
        broker.start()
        assert "BindException" not in broker.log_text(), "the log since the last start"
        return
    with pytest.raises(BrokerError, match="ended during its start") as caught:
        broker.start()
    assert caught.value.lines == ["ERROR SocketServer: ends", "  java.net.BindException: in use"]


def test_broker_that_ends_is_an_error(broker: Broker, java: Any) -> None:
    java("INFO LogManager - all is well\nINFO X - ends\n", STARTED)
    with pytest.raises(BrokerError, match="ended during its start") as caught:
        broker.start()
    assert caught.value.lines[:2] == ["INFO LogManager - all is well", "INFO X - ends"], (
        "nothing better was said"
    )


def test_broker_that_hangs_is_an_error(broker: Broker, java: Any) -> None:
    java("INFO X - loading\n")
    with pytest.raises(BrokerError, match=r"did not start within 0\.3 s"):
        broker.start(timeout=0.3)
    java(f"INFO X - stubborn\n{STARTED}")
    broker.start()
    with pytest.raises(BrokerError, match=r"did not stop within 0\.1 s"):
        broker.stop(timeout=0.1)
    with pytest.raises(OracleError, match="not running"):
        broker.stop()


def test_partition_is_placed_in_its_own_directory(broker: Broker, session: Session, orders: Path) -> None:
    name = broker.place(
        orders,
        configs={"retention.ms": "-1"},
        clean=True,
        checkpoints={"recovery-point-offset-checkpoint": 10},
    )
    assert name == "orders"
    place = broker.partition_dir("orders", 3)
    assert place == broker.home / "logs-orders-3" / "orders-3"
    assert broker.files("orders", 3)["1.log"] == b"log"
    assert (place.parent / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 3 10\n"
    assert (place.parent / kafka_broker.MARKER).exists()
    broker.place(orders)
    assert not (place.parent / kafka_broker.MARKER).exists(), "placed again"
    assert not (place.parent / "recovery-point-offset-checkpoint").exists()
    broker.place(orders, "copy", 0, leader_epoch=4)
    broker.start()
    topics = {topic["name"]: topic for topic in session.asked[-1]["topics"]}
    assert topics["orders"]["id"] == ANY_ID
    assert topics["orders"]["configs"] == {"retention.ms": "-1"}
    assert topics["orders"]["partitions"] == {"3": {"directory": "id-of-logs-orders-3", "leader_epoch": 10}}
    assert topics["copy"]["partitions"] == {"0": {"directory": "id-of-logs-copy-0", "leader_epoch": 4}}
    assert topics["copy"]["id"] != ANY_ID, "an id is one topic's"
    decoded = broker.files("copy")["partition.metadata"].decode()
    assert decoded == f"version: 0\ntopic_id: {topics['copy']['id']}"
    with pytest.raises(OracleError, match="the broker is running"):
        broker.place(orders)


@pytest.mark.parametrize(
    "content", [b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", b"\xff", b"version: 1", None]
)
def test_topic_without_a_usable_id_gets_one(broker: Broker, orders: Path, content: bytes | None) -> None:
    (orders / "partition.metadata").unlink()
    if content is not None:
        (orders / "partition.metadata").write_bytes(content)
    broker.place(orders)
    assert broker.files("orders", 3)["partition.metadata"] != content
    if content is not None:
        broker.place(orders, keep_metadata=True)
        assert broker.files("orders", 3)["partition.metadata"] == content


def test_topic_is_replaced_between_two_starts(
    broker: Broker, session: Session, java: Any, orders: Path
) -> None:
    session.answers["create_topic"] = ([], ANY_ID)
    broker.start()
    broker.create_topic("orders", {"retention.ms": "-1"}, partitions=4)
    assert session.asked[-1]["bootstrap"] == broker.bootstrap
    assert (session.asked[-1]["name"], session.asked[-1]["partitions"]) == ("orders", 4)
    own = broker.home / "logs" / "orders-3"
    own.mkdir(parents=True)
    assert broker.partition_dir("orders", 3) == own
    with pytest.raises(OracleError, match="there is no partition orders-7"):
        broker.partition_dir("orders", 7)
    broker.stop()
    with pytest.raises(OracleError, match="topic other is not known"):
        broker.place(orders, "other")
    broker.place(orders)
    assert not own.exists()
    assert (broker.home / "logs-orders-3" / "orders-3" / "1.log").exists()
    with pytest.raises(OracleError, match="given to create_topic"):
        broker.place(orders, configs={"retention.ms": "5"})


def test_directory_without_a_number_is_the_first(broker: Broker, orders: Path) -> None:
    place = orders.rename(orders.with_name("golden-copy"))
    assert broker.place(place, "orders") == "orders"
    assert broker.partition_dir("orders", 0).exists()


def test_directory_without_an_id_is_formatted(broker: Broker, session: Session, orders: Path) -> None:
    def formatted(dirs: list[str], **_: Any) -> tuple[list[Any], Any]:
        for directory in dirs:
            Path(directory, "meta.properties").write_text("version=1\n")
        return [], None

    session.answers["format"] = formatted
    broker.place(orders)
    with pytest.raises(OracleError, match="gave the directory no id"):
        broker.start()


def test_ids_do_not_look_like_options(monkeypatch: pytest.MonkeyPatch) -> None:
    class Uuid:
        def __init__(self, first: int) -> None:
            self.bytes = bytes([first]) + bytes(15)

    uuids = iter([Uuid(0xF8), Uuid(0)])
    monkeypatch.setattr(kafka_broker.uuid, "uuid4", lambda: next(uuids))
    assert kafka_broker._uuid() == "A" * 22


# Clients


def test_consumer_reads_to_the_end(broker: Broker, session: Session) -> None:
    broker.start()
    done = {"log_start_offset": 0, "end_offset": 2, "position": 2, "error": None}
    session.answers["consume"] = lambda **_: ([record(0), record(1, "6b")], done)
    assert [consumed["key"] for consumed in broker.consume("orders", "read_committed", partition=3)] == [
        None,
        b"k",
    ]
    asked = session.asked[-1]
    assert (asked["isolation"], asked["partition"], asked["timeout_ms"]) == ("read_committed", 3, 15000)
    assert "limit" not in asked
    assert broker.consume_all("orders", limit=1, wait=1).end_offset == 2
    assert session.asked[-1]["limit"] == 1
    session.answers["consume"] = lambda **_: ([record(0)], {**done, "position": 1, "error": ERROR})
    with pytest.raises(
        ConsumeError, match=r"of orders-0 stopped at offset 1 of 2: a\.CorruptRecordException: bad"
    ) as caught:
        broker.consume("orders")
    assert [record["offset"] for record in caught.value.consumed.records] == [0]


def test_broker_oracle_produces_and_lists_offsets(broker: Broker, session: Session) -> None:
    broker.start()
    session.answers["produce"] = ([], (4, 5))
    assert broker.produce("orders", [{"value": b"v"}], abort=True, configs={"transactional.id": "t"}) == [
        4,
        5,
    ]
    assert session.asked[-1]["records"] == [{"value": "76"}]
    assert (session.asked[-1]["abort"], session.asked[-1]["configs"]) == (True, {"transactional.id": "t"})
    session.answers["offsets"] = ([], {"high_watermark": 5})
    assert broker.offsets("orders") == {"high_watermark": 5}


# Output of the broker


def test_log_lines_about_a_partition(broker: Broker, java: Any, orders: Path) -> None:
    broker.place(orders)
    place = broker.home / "logs-orders-3"
    java(
        "continued of nothing\n"
        "INFO LogManager - Loading logs from log dirs ArrayBuffer(" + str(place) + ")\n"
        "INFO LogLoader - [LogLoader partition=orders-3] Recovering in 25 ms\n"
        "INFO LogLoader - [LogLoader partition=orders-30] Recovering\n"
        "INFO BrokerServer - orders-3 is mentioned\n"
        f"WARN UnifiedLog - {place}/orders-3 is torn\n"
        "java.io.IOException: short\n"
        "\tat a.B.c\n"
        "\t... 9 more\n"
        "Caused by: x.Y: topic=orders, partition=3\n"
        "\n" + STARTED
    )
    broker.start()
    assert broker.log_lines("orders", 3) == [
        "INFO LogLoader: [LogLoader partition=orders-3] Recovering in N ms",
        "WARN UnifiedLog: LOGDIR/orders-3 is torn",
        "  java.io.IOException: short",
        "  Caused by: x.Y: topic=orders, partition=3",
    ]
    assert broker.log_lines("other") == []
