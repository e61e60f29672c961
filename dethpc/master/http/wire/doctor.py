"""What the doctor found, on the wire. Ours."""

from __future__ import annotations

from dethpc.master.http.models import Wire


class Finding(Wire):
    """``level``: ok, note, warning or error. ``dethpc``: what it does about it; ``change``: what somebody could change."""

    check: str
    level: str
    found: str
    dethpc: str
    change: str


class Diagnosis(Wire):
    """``examined_at``: None when nobody has looked yet."""

    examined_at: str | None
    host: str
    findings: list[Finding]
