"""Identity of a machine, and which machine's jobs a table has.

Process ids mean nothing on another machine, nor in another container of this one, and SQLite's files may be shared by the processes
of one kernel alone. So each has a table of its own below ``local``: what is in another's is nobody's evidence here.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from dethpc.errors import SchedulerUnavailable
from dethpc.rundir import process
from dethpc.rundir.files import read_object, sealed, write_json
from dethpc.scheduler.local import processes

_FILE = "machine.json"
_MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))


@dataclass(frozen=True)
class Machine:
    """``boot`` and ``namespace`` name the processes that can be seen together; "" where it is not known."""

    host: str
    machine_id: str = ""
    boot: str = ""
    namespace: str = ""

    @classmethod
    def this(cls) -> Machine:
        return cls(socket.gethostname(), _machine_id(), processes.boot(), process.namespace())

    def may_judge(self, other: Machine) -> bool:
        """Whether this one can tell what became of the other's processes: they are its own, or ended when it was booted.

        A name alone says nothing, and neither does a machine id: clones of one image share it.
        """
        if self.boot == other.boot:
            return bool(self.boot) and self.namespace == other.namespace
        return self.host == other.host and (self.machine_id == other.machine_id != "" or not other.boot)


class Place:
    """Where the table of this machine is: ``folder``, and the name of its jobs' scheduler, ``identity``.

    The first machine of a home has ``local``, others a folder in ``local/machines``. Nothing is written before ``settle``.
    """

    def __init__(self, home: Path) -> None:
        self._first, self._this = home.absolute() / "local", Machine.this()
        self.folder, written = self._first, read_object(self._first / _FILE)
        if not written and (owner := _owner_of_earlier(self._first)) is not None:
            written = {"name": owner.host, "id": _new_id(), **asdict(owner)}
        self._owner = written
        if written and not self._is_mine(written):
            self.folder, written = self._among_others()
        self._name, self._id = str(written.get("name") or self._this.host), str(written.get("id") or _new_id())

    @property
    def identity(self) -> str:
        """It stays when the machine is renamed."""
        return f"local:{self._name}:{self._id}"

    def settle(self) -> None:
        """Write down whose the table is. Raises: SchedulerUnavailable."""
        try:
            if self.folder != self._first and not (self._first / _FILE).exists():
                write_json(self._first / _FILE, sealed(self._owner))  # an earlier release did not say whose it is
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            entry = {"name": self._name, "id": self._id, **asdict(self._this)}
            if read_object(self.folder / _FILE) != entry:
                write_json(self.folder / _FILE, sealed(entry))
        except OSError as error:
            raise SchedulerUnavailable(
                f"the local scheduler's folder {self.folder} cannot be written: {error}"
            ) from error

    def _is_mine(self, owner: dict[str, object]) -> bool:
        names = ("host", "machine_id", "boot", "namespace")
        return self._this.may_judge(Machine(*(str(owner.get(name) or "") for name in names)))

    def _among_others(self) -> tuple[Path, dict[str, object]]:
        others = self._first / "machines"
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(others)):
                owner = read_object(others / name / _FILE)
                if owner and self._is_mine(owner):
                    return others / name, owner
        fresh = _new_id()
        return others / fresh, {"id": fresh}


def _owner_of_earlier(folder: Path) -> Machine | None:
    """Whose the table of an earlier release is, which does not say it: that of its last job. None: there is no job, or no table."""
    if not (folder / "jobs.db").is_file():
        return None
    statement = "SELECT node FROM jobs WHERE node != '' ORDER BY id DESC LIMIT 1"
    try:
        with contextlib.closing(sqlite3.connect(f"file:{folder / 'jobs.db'}?mode=ro", uri=True)) as connection:
            row = connection.execute(statement).fetchone()
    except sqlite3.Error:
        return None  # who uses it says what is wrong with it
    return None if row is None else Machine(str(row[0]))


def _new_id() -> str:
    return uuid.uuid4().hex[:12]


def _machine_id() -> str:
    for path in _MACHINE_IDS:
        with contextlib.suppress(OSError):
            if text := path.read_text().strip():
                return text
    return ""
