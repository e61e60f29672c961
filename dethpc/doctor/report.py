"""The last findings, stored in the home, so that a later reader queries neither Slurm nor the machine."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import Any, TypedDict

from dethpc.doctor.finding import Finding
from dethpc.rundir.files import read_object, write_json
from dethpc.rundir.home import Home


class Report(TypedDict):
    """``at``: seconds since the epoch; ``host``: where; ``findings`` as ``Finding.to_json`` has them."""

    at: float
    host: str
    findings: list[dict[str, Any]]


def keep(home: Home, findings: Sequence[Finding]) -> Report:
    """In place of the one before. Raises OSError."""
    report: Report = {
        "at": time.time(),
        "host": socket.gethostname(),
        "findings": [finding.to_json() for finding in findings],
    }
    write_json(home.doctor_report, dict(report), durable=False)
    return report


def latest(home: Home) -> Report | None:
    """None: nobody has looked yet, or the file is damaged."""
    saved = read_object(home.doctor_report)
    findings = saved.get("findings")
    if not isinstance(findings, list) or not isinstance(saved.get("at"), (int, float)):
        return None
    names = ("check", "level", "found", "dethpc", "change")
    rows = [{name: str(row.get(name, "")) for name in names} for row in findings if isinstance(row, dict)]
    return {"at": float(saved["at"]), "host": str(saved.get("host", "")), "findings": rows}
