"""What strangers can make the log say, it says once a minute."""

from __future__ import annotations

import logging

import pytest

from dethpc.master import own_log


def test_a_message_is_said_once_a_minute_with_how_many_times_it_was_not(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logging.getLogger("test_quiet")
    once = own_log.OncePerMinute()
    log.addFilter(once)
    for number in range(5):
        log.warning("a connection cannot be accepted: %s", number)
    log.warning("something else")
    monkeypatch.setattr(own_log, "_PAUSE", 0.0)
    log.warning("a connection cannot be accepted: %s", "too many open files")
    log.removeFilter(once)
    assert caplog.messages == [
        "a connection cannot be accepted: 0",
        "something else",
        "a connection cannot be accepted: too many open files (4 times more since this was said last)",
    ]
