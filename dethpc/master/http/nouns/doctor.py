"""Routes of ``det doctor``: the last diagnosis of this site, and a new one, for which the doctor and its checks are imported."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from dethpc.errors import Refused
from dethpc.master.http.access import Owner, TheInstallation
from dethpc.master.http.models import Wire, time
from dethpc.master.http.router import new_router

if TYPE_CHECKING:
    from dethpc.doctor import report


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


router = new_router(prefix="/api/v1/doctor", tags=["master"])

_examining = threading.Lock()


@router.get("")
def diagnosis(installation: TheInstallation, who: Owner) -> Diagnosis:
    """What was found last, by the master or by ``det doctor``. Asks neither Slurm nor the machine."""
    from dethpc.doctor import report

    return _diagnosis(report.latest(installation.home))


@router.post("")
def examine_now(installation: TheInstallation, who: Owner) -> Diagnosis:
    """Look again, on the master's machine. Asks Slurm a few questions, and sends no job."""
    from dethpc.doctor import examine, report
    from dethpc.doctor.read import read

    if not _examining.acquire(blocking=False):
        raise Refused("an examination is under way; look at its findings in a minute")
    try:
        facts = read(installation.home.root, installation.site, None)
        return _diagnosis(report.keep(installation.home, list(examine(facts))))
    finally:
        _examining.release()


def _diagnosis(examination: report.Report | None) -> Diagnosis:
    if examination is None:
        return Diagnosis(examined_at=None, host="", findings=[])
    findings = [Finding(**finding) for finding in examination["findings"]]
    return Diagnosis(examined_at=time(examination["at"]), host=examination["host"], findings=findings)
