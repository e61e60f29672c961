"""Times as the REST API and journals write them."""

from __future__ import annotations

import pytest

from dethpc.domain.text.times import moment, seconds


@pytest.mark.parametrize(
    "text", ["1970-01-01T00:01:00Z", "1970-01-01T01:01:00+01:00", " 1970-01-01T00:01:00z ", "1970-01-01T00:01:00"]
)
def test_a_time_without_a_zone_is_utcs(text: str) -> None:
    assert seconds(text) == 60.0


def test_a_time_keeps_its_zone_and_its_microseconds() -> None:
    assert moment("2026-01-31T12:00:00.000001+02:00").isoformat() == "2026-01-31T12:00:00.000001+02:00"
    assert moment("2026-01-31T12:00:00").tzinfo is None


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(ValueError):
        seconds("yesterday")
