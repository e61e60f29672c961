"""What users and strangers send can neither forge an entry of the master's log nor move the terminal that shows it."""

from __future__ import annotations

import logging
from pathlib import Path

from dethpc.master import own_log, serve
from dethpc.master.own_log import LogFormat

FORGED = "hello\n2026-11-21 00:00:00,000 INFO dethpc.master.auth: login of root succeeded\x1b[2J"


def test_a_newline_in_a_message_begins_no_entry(tmp_path: Path) -> None:
    path = tmp_path / "master.log"
    handler = logging.FileHandler(path)
    handler.setFormatter(LogFormat())
    log = logging.Logger("test")
    log.addHandler(handler)
    log.info("webhook: %s", FORGED)
    try:
        raise ValueError(FORGED)
    except ValueError:
        log.exception("it failed: %s", FORGED)
    handler.close()
    entries, _, _ = own_log.read(path)
    assert [entry.level for entry in entries if entry.level != "UNSPECIFIED"] == ["INFO", "ERROR"]
    assert "\x1b" not in path.read_text() and all(
        e.message.startswith("    ") for e in entries if e.level == "UNSPECIFIED"
    )


def test_the_masters_log_has_that_form(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    given: list[logging.Handler] = []
    monkeypatch.setattr(serve.logging, "basicConfig", lambda *, level, handlers: given.extend(handlers))
    monkeypatch.setattr(serve, "site_of", lambda *_: 1 / 0)
    try:
        serve.serve(tmp_path, None, 0)
    except ZeroDivisionError:
        pass
    assert [type(handler.formatter) for handler in given] == [LogFormat]
    given[0].close()
