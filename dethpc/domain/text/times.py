"""Times as text: RFC 3339, as the REST API and journals have them."""

from __future__ import annotations

from datetime import datetime, timezone


def moment(text: str) -> datetime:
    """The time of a clock, with its zone where ``text`` has one. Raises ValueError."""
    return datetime.fromisoformat(text.strip().replace("Z", "+00:00").replace("z", "+00:00"))


def seconds(text: str) -> float:
    """Seconds since the epoch; a time without a zone is UTC's. Raises ValueError, OverflowError."""
    at = moment(text)
    return at.replace(tzinfo=at.tzinfo or timezone.utc).timestamp()
