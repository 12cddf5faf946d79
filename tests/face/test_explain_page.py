"""The HTML page: it is self-contained, and in a real browser bytes and fields highlight each other."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Page, browser, chromium

import logwright as lw
from logwright.corpora.cases import cases

KAFKA = cases("kafka")
SEGMENT = KAFKA["v2_gzip_aiokafka"].partition / "00000000000000000000.log"
DAMAGED = KAFKA["dmg_flip_attr"].partition / "00000000000000000086.log"

needs_browser = pytest.mark.skipif(
    chromium() is None,
    reason="there is no Chromium here: `apt-get install chromium` installs one for this test",
)


def content(page: str) -> dict[str, Any]:
    """The data in a page."""
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    data: dict[str, Any] = json.loads(match[1])
    return data


# Content


def test_page_is_self_contained() -> None:
    page = lw.explain(SEGMENT).html()
    assert not re.search(
        r"""(?:src|href|action)\s*=|@import|url\(|https?:|//[a-z]+\.""",
        re.sub(r"(?s)<script type.*?</script>", "", page),
    )
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in policy[1]


def test_page_contains_all_bytes() -> None:
    data = content(lw.explain(SEGMENT).html())
    assert base64.b64decode(data["spaces"][0]["bytes"]) == SEGMENT.read_bytes()
    assert data["spaces"][0]["ranges"][0] == [0, 971]
    inner = data["spaces"][1]
    assert (inner["start"], inner["how"], inner["around"]) == (61, "unpacked", 0)
    names = [data["strings"][i] for i in data["nodes"]["name"]]
    assert names[:3] == ["RecordBatch", "base_offset", "batch_length"]
    assert {len(column) for column in data["nodes"].values()} == {len(names)}


def test_problem_is_counted_once() -> None:
    """The heading of a damaged range repeats no problem that a field shows."""
    data = content(lw.explain(DAMAGED).html())
    problems = [i for i, problem in enumerate(data["nodes"]["problem"]) if problem]
    kinds = {data["strings"][data["nodes"]["kind"][i]] for i in problems}
    assert "damage" in {data["strings"][kind] for kind in data["nodes"]["kind"]}
    assert "damage" not in kinds
    assert len(problems) == 3


def test_preallocated_zeros_are_no_problem(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000"
    lw.write([{"topic": "T", "body": b"x"}], path, "rocketmq.commitlog", mappedFileSizeCommitLog=4096)
    explanation = lw.explain(path)
    zeros = explanation.pieces[-1]
    assert zeros.fault is not None
    assert explanation.problems == 0
    assert "DAMAGED" not in explanation.text()
    assert "preallocated zeros" in explanation.text()
    assert [piece["kind"] for piece in explanation.to_dict()["pieces"]] == ["frame", "other"]
    data = content(explanation.html())
    assert not any(data["nodes"]["problem"])
    assert "damage" not in data["strings"]


def test_file_content_is_escaped(tmp_path: Path) -> None:
    """The file name is escaped too."""
    evil = "</script><script>alert(1)</script><!--<img src=x onerror=alert(1)>__DATA__ __SCRIPT__"
    folder = tmp_path / "orders-0"
    folder.mkdir()
    path = folder / "00000000000000000000.log"
    lw.write(
        [{"key": evil, "value": "\x00\u2028'\"&", "headers": [{"key": evil, "value": b""}]}],
        path,
        "kafka.log",
    )
    page = lw.explain(path).html()
    assert page.count("<script") == 2
    assert page.count("</script>") == 2
    assert "<img" not in page
    data = content(page)
    assert any(evil[:40] in text for text in data["strings"])
    named = tmp_path / "<b>__TITLE__ __DATA__&.log"
    named.write_bytes(path.read_bytes())
    titled = lw.explain(named, "kafka.log").html()
    assert "<title>&lt;b&gt;__TITLE__ __DATA__&amp;.log: kafka.log</title>" in titled
    assert content(titled)["path"] == str(named)


def test_page_contains_damage_and_notes() -> None:
    data = content(lw.explain(DAMAGED).html())
    strings = data["strings"]
    kinds = [strings[i] for i in data["nodes"]["kind"]]
    at = kinds.index("damage")
    assert strings[data["nodes"]["meaning"][at]].startswith("crc mismatch")
    assert "the broker truncates the log here" in data["more"][str(at)]["system"]
    asked = content(lw.explain(DAMAGED.parent, fault=1).html())
    assert asked["notes"][0].startswith("fault 1 of 1")
    assert asked["focus"] == [327]
    row = content(lw.explain(SEGMENT, where={"offset": 17}).html())
    assert (row["focus"], row["row"]) == ([61, 587], 17)


# In a browser


@pytest.fixture(scope="module")
def open_browser() -> Iterator[Page]:
    with browser() as page:
        yield page


def opened(page: Page, actual: lw.Explanation, tmp_path: Path, **size: int) -> Page:
    out = tmp_path / "page.html"
    out.write_text(actual.html(), encoding="utf-8")
    page.errors.clear()
    page.open(out, **size)
    return page


def field(text: str) -> str:
    """Return the row of a field by its text."""
    return f"[...document.querySelectorAll('.field')].find((row) => row.textContent.includes({json.dumps(text)}))"


def lit(page: Page, classes: str) -> list[int]:
    """Return the offsets of the bytes with this mark."""
    actual: list[int] = page.js(
        f"[...document.querySelectorAll('b.{classes}')].map((one) => Number(one.dataset.at))"
    )
    return actual


def chosen(page: Page) -> str:
    return str(page.js("document.querySelector('.field.chosen .name').textContent"))


@needs_browser
def test_click_on_a_field_highlights_its_bytes(open_browser: Page, tmp_path: Path) -> None:
    page = opened(open_browser, lw.explain(SEGMENT), tmp_path)
    page.click(field("attributes"))
    assert lit(page, "chosen") == [21, 22]
    assert page.js("document.querySelector('#detail h2').textContent") == "RecordBatch \u203a attributes"
    assert "compression" in page.js("document.querySelector('#detail .bits').textContent")
    page.move(field("producer_id"))
    assert lit(page, "hot") == list(range(43, 51))
    assert lit(page, "chosen") == [21, 22]
    assert page.errors == []


@needs_browser
def test_click_on_a_byte_highlights_its_field(open_browser: Page, tmp_path: Path) -> None:
    page = opened(open_browser, lw.explain(SEGMENT), tmp_path)
    page.move("document.querySelector('b[data-at=\"10\"]')")
    assert "batch_length" in page.js("document.querySelector('.field.hot').textContent")
    assert lit(page, "hot") == [8, 9, 10, 11]
    page.click("document.querySelector('b[data-at=\"18\"]')")
    assert chosen(page) == "crc"
    assert lit(page, "cursor") == [18]
    page.click("document.querySelector('i[data-at=\"16\"]')")
    assert chosen(page) == "magic"
    assert page.errors == []


@needs_browser
def test_compressed_content_can_be_opened_and_closed(open_browser: Page, tmp_path: Path) -> None:
    page = opened(open_browser, lw.explain(SEGMENT, where={"offset": 17}), tmp_path)
    assert (
        page.js("document.querySelector('#where').textContent")
        == "file\u203arecords at 61unpacked, 1,007 bytes"
    )
    assert chosen(page) == "[17]"
    assert lit(page, "chosen") == list(range(587, 621))
    page.click(field('key"key-15"'))
    assert len(lit(page, "chosen")) == 7
    page.click("document.querySelector('#where button')")
    assert page.js("document.querySelector('#where').textContent").startswith("file")
    assert chosen(page) == "records"
    assert min(lit(page, "chosen")) == 61
    page.js("document.querySelector('#tree').focus()")
    page.key("Enter")
    assert "unpacked" in page.js("document.querySelector('#where').textContent")
    page.key("u")
    assert chosen(page) == "records"
    assert page.errors == []


@needs_browser
def test_keys_move_through_the_fields(open_browser: Page, tmp_path: Path) -> None:
    page = opened(open_browser, lw.explain(SEGMENT, limit=1), tmp_path)
    page.js("document.querySelector('#tree').focus()")
    names = [chosen(page)]
    for _ in range(3):
        page.key("ArrowDown")
        names.append(chosen(page))
    assert names == ["RecordBatch", "base_offset", "batch_length", "partition_leader_epoch"]
    assert page.js("document.querySelector('#tree').getAttribute('aria-activedescendant')") == "f3"
    page.key("ArrowUp")
    page.key("ArrowLeft")
    assert chosen(page) == "RecordBatch"
    page.key("ArrowLeft")
    assert page.js("document.querySelectorAll('.field').length") == 1
    page.key("ArrowRight")
    assert page.js("document.querySelectorAll('.field').length") > 10
    page.js("document.querySelector('#hex').focus()")
    page.key("ArrowRight")
    page.key("ArrowDown")
    assert lit(page, "cursor") == [16]
    assert chosen(page) == "magic"
    page.key("/")
    assert page.js("document.activeElement.id") == "search"
    page.js("document.querySelector('#search').value = 'key-18'")
    page.key("Enter")
    assert page.js("document.querySelector('.field.chosen').textContent").count("key-18")
    page.js(
        "document.querySelector('#search').value = '0x2b'; document.querySelector('#search').dispatchEvent(new Event('input'))"
    )
    page.key("Enter")
    page.js(
        "document.querySelector('#search').value = 'no such thing'; document.querySelector('#search').dispatchEvent(new Event('input'))"
    )
    page.key("Enter")
    assert page.js("document.querySelector('#search').classList.contains('none')")
    assert page.errors == []


@needs_browser
def test_problems_can_be_stepped_through(open_browser: Page, tmp_path: Path) -> None:
    page = opened(open_browser, lw.explain(DAMAGED), tmp_path)
    assert page.js("document.querySelector('#count').textContent") == "3 problems"
    assert chosen(page) == "crc"
    assert (
        page.js("document.querySelector('#detail .bad').textContent")
        == "checksum mismatch: stored 0x1e15918d, computed 0x6216ddb0. Flipping bit 1 of byte 349 would fix it"
    )
    page.click("document.querySelector('#next')")
    assert chosen(page) == "attributes"
    page.click("document.querySelector('#next')")
    assert chosen(page) == "records"
    page.key("p")
    page.key("p")
    assert chosen(page) == "crc"
    assert page.js("document.querySelectorAll('.hex.bad').length") == 9
    assert page.errors == []


@needs_browser
def test_theme_can_be_switched(open_browser: Page, tmp_path: Path) -> None:
    page = opened(open_browser, lw.explain(DAMAGED), tmp_path)
    ground = "getComputedStyle(document.body).backgroundColor"
    before = page.js(ground)
    page.click("document.querySelector('#theme')")
    assert page.js(ground) != before
    page.key("t")
    assert page.js(ground) == before
    page.key("?")
    assert not page.js("document.querySelector('#keys').hidden")
    page.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 20_000


@needs_browser
def test_narrow_window_stacks_bytes_and_fields(open_browser: Page, tmp_path: Path) -> None:
    page = opened(open_browser, lw.explain(DAMAGED), tmp_path, width=800, height=900)
    assert page.js("document.documentElement.scrollWidth <= innerWidth")
    bytes_, fields = (
        page.middle("document.querySelector('#bytes')"),
        page.middle("document.querySelector('#fields')"),
    )
    assert bytes_[1] < fields[1]
    assert page.errors == []


@pytest.mark.extended
@needs_browser
def test_file_of_several_megabytes_can_be_navigated(open_browser: Page, tmp_path: Path) -> None:
    """Only visible rows are drawn, and a single key goes to the last byte."""
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    path.parent.mkdir()
    lw.write([{"key": b"k%d" % i, "value": b"v" * 90} for i in range(20_000)], path, "kafka.log")
    assert path.stat().st_size > 2 << 20
    explanation = lw.explain(path, items=100_000)
    page = opened(open_browser, explanation, tmp_path)
    assert page.js("document.querySelectorAll('*').length") < 5000
    shown = explanation.pieces[-1].stop
    page.js("document.querySelector('#hex').focus()")
    page.key("End")
    assert lit(page, "cursor") == [shown - 1]
    assert page.js("document.querySelector('.field.chosen')") is not None
    assert page.js("document.querySelectorAll('*').length") < 5000
    assert page.errors == []
