"""Files of a home that can be verified by themselves: by their name, a checksum in them, or their form.

What is damaged is written again where its source is at hand: the harness bundle by ``harness.build``, a context directory by
``contexts.keep`` when its folder is sent again. docs/reliability.md has the table of all kinds of files.
"""

from __future__ import annotations

import logging
import sqlite3
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dethpc.errors import RunDirError, SubmitDeferred
from dethpc.master.durable import contexts, harness
from dethpc.master.rounds import Rounds
from dethpc.master.submitting import job_environment
from dethpc.rundir import archives
from dethpc.rundir.files import names, read_json, walk
from dethpc.rundir.home import Home

log = logging.getLogger(__name__)

_DAY = 86400.0


class Damage(NamedTuple):
    kind: str  # harness, context, environment, installation, archive, run directory
    path: Path
    what: str

    def __str__(self) -> str:
        return f"{self.path} is damaged: {self.what}"


def damages(home: Home) -> Iterator[Damage]:
    """Everything that is damaged and no row tells of. Files that vanish meanwhile are passed over."""
    yield from of_bundles(home)
    yield from of_contexts(home)
    yield from _of_environments(home)
    yield from _of_installation(home)
    yield from _of_runs(home)


def check_inputs(home: Home, bundle: Path, context_sha256: str) -> list[str]:
    """Verify what every run of an experiment reads, and write the bundle again where it is damaged; what was done, in words.

    Raises SubmitDeferred where something stays damaged: no run could start with it.
    """
    done = []
    if why := harness.damage(bundle) if bundle.exists() else "it is missing":
        if harness.build(home.root) != bundle:
            raise SubmitDeferred(
                f"{bundle} is damaged ({why}), and another release of dethpc is installed by now: restart the master with "
                "det master down and det master up"
            )
        done.append(f"{bundle} was damaged ({why}) and has been written again")
    if context_sha256 and (why := _of_context(path := home.context(context_sha256))):
        raise SubmitDeferred(str(Damage("context", path, why)))
    return done


def of_bundles(home: Home) -> Iterator[Damage]:
    for path in sorted((home.root / "harness").glob("harness-*.zip")):
        try:
            why = harness.damage(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            why = str(error.strerror)
        if why:
            remedy = (
                "the next master writes it again if it is of this release; runs that fail with it are submitted anew"
            )
            yield Damage("harness", path, f"{why}; {remedy}")


def of_contexts(home: Home) -> Iterator[Damage]:
    for path in sorted(home.contexts.glob("*.tar.gz")):
        if why := _of_context(path):
            yield Damage("context", path, why)


def _of_context(path: Path) -> str:
    try:
        why = contexts.damage(path)
    except FileNotFoundError:
        return ""
    return f"{why}; {contexts.REMEDY}" if why else ""


def _of_environments(home: Home) -> Iterator[Damage]:
    for name in sorted(names(home.environments)):
        path = home.environments / name
        if path.suffix == ".tmp":
            continue
        try:
            job_environment.read(path)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            remedy = "put it back from a backup, or kill its experiment and create it again"
            yield Damage("environment", path, f"{error}; {remedy}")


def _of_installation(home: Home) -> Iterator[Damage]:
    machines = sorted((home.root / "local").glob("**/machine.json"))
    for path in (home.cluster_file, home.scheduler_file, *machines, home.master_file, home.losses, home.doctor_report):
        yield from _of_json("installation", path)
    jobs = home.root / "local" / "jobs.db"
    if jobs.exists():
        try:
            with sqlite3.connect(f"file:{jobs}?mode=ro", uri=True, timeout=5) as connection:
                (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            connection.close()
            why = "" if verdict == "ok" else str(verdict)
        except sqlite3.OperationalError as error:
            why = "" if "locked" in str(error) else str(error)
        except sqlite3.DatabaseError as error:
            why = str(error)
        if why:
            yield Damage("installation", jobs, why)


def _of_runs(home: Home) -> Iterator[Damage]:
    for name in sorted(names(home.runs)):
        path = home.runs / name
        if archives.runs_of(name):
            yield from _of_archive(path)
        elif archives.trial_of(name):
            for below in walk(path):
                if below.endswith(".json") or below in ("claim", "closed", "submitting"):
                    yield from _of_json("run directory", path / below)
    for name in sorted(names(home.arrays)):
        yield from _of_json("run directory", home.arrays / name / "array.json")


def _of_archive(path: Path) -> Iterator[Damage]:
    try:
        with zipfile.ZipFile(path) as archive:
            member = archive.testzip()
        why = f"checksum mismatch in {member}" if member else ""
    except FileNotFoundError:
        return
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError, NotImplementedError, zlib.error) as error:
        why = str(error)
    if why:
        yield Damage("archive", path, why)


def _of_json(kind: str, path: Path) -> Iterator[Damage]:
    try:
        read_json(path)
    except (RunDirError, OSError) as error:
        why = str(error).removeprefix(f"{path} is damaged: ") if isinstance(error, RunDirError) else error.strerror
        yield Damage(kind, path, str(why))


class AtRest:
    """Says in the master's log, at its start and once a day, which inputs of runs are damaged, before a run needs them."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._rounds = Rounds("at-rest", self._look, _DAY, first=0.0, trouble="files at rest could not be verified")
        self.start, self.stop = self._rounds.start, self._rounds.stop

    def _look(self) -> None:
        for damage in (*of_bundles(self._home), *of_contexts(self._home)):
            log.error("%s", damage)
