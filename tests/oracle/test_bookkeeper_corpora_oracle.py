"""A real bookie starts on a generated bookie, edited or not, and a real client reads the entries that logwright reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import logwright as lw
from logwright.roundtrip.oracles import bookkeeper as bk

pytestmark = pytest.mark.oracle
CONFIG = {
    "journalDirectories": "journal-0,journal-1",
    "ledgerDirectories": "ledger-0,ledger-1",
    "indexDirectories": "index-0,index-1",
}
DROPPED, REDACTED = 515, 258


@pytest.fixture(scope="module", autouse=True)
def _judge() -> None:
    reason = bk.available()
    if reason is not None:
        pytest.skip(reason)


@pytest.mark.parametrize("edited", [False, True])
def test_client_reads_all_entries_of_a_generated_bookie(edited: bool, tmp_path: Path) -> None:
    home = tmp_path / "bookie"
    options = dict(
        lw.generate("bookkeeper.bookie", home, rows=200, seed=7, recipe="mixed").manifest["read_options"]
    )
    for cookie in home.glob("*/current/VERSION"):
        text = cookie.read_text().replace("/data/", "").replace("10.0.0.1:3181", bk.BOOKIE_ID)
        cookie.write_text(text.replace("3a5b6c1e-0000-4000-8000-1234567890ab", bk.INSTANCE))
    if edited:
        changes: dict[str, Any] = {"drop": f"ledger_id == {DROPPED}", "redact": f"ledger_id == {REDACTED}"}
        lw.edit(home, tmp_path / "out", columns="payload", **changes, **options)
        home = tmp_path / "out"
    entries: dict[int, list[int]] = {}
    digests: dict[int, str] = {}
    for row in lw.read(home, columns="*", **options).to_pylist():
        entries.setdefault(row["ledger_id"], []).append(row["entry_id"])
        digests[row["ledger_id"]] = row["digest_type"].replace("HMAC", "MAC")
        assert not edited or row["ledger_id"] != REDACTED or row["payload"] == b""
    started = bk.start(home, CONFIG)
    assert started.started, started.exception
    passwords = options["passwd"]
    ledgers = [bk.Ledger(key, kind, passwords.get(str(key), "").encode()) for key, kind in digests.items()]
    served = bk.read(ledgers)
    bk.stop()
    assert (DROPPED in entries) is not edited
    assert {key: sorted(served[key].read or ()) for key in entries} == entries
    assert all(not served[key].failed and not served[key].error for key in entries)
