"""Processes that die at each step in turn of what they do with a checkpoint: ``python -m tests.storage.dying DEED``.

A step is a request to a server, or a change of the file system; of what saves to a server, a request alone. The deed ``n`` concerns
checkpoint ``a<n>`` and dies at its step ``n``; the last one has no more steps and lives. What each has left is for a test to look
at.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, Callable, Dict, NoReturn

from dethpc import storage
from dethpc.storage import driver
from dethpc.storage.spool import Spool
from tests.storage.contract import fill
from tests.waiting import LONG_ENOUGH

_CHANGES = {"os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "os.utime"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def died_at_each_step(deed: str, section: Dict[str, Any], folder: Path) -> int:
    """How many died. ``deed``: ``save`` a checkpoint, ``keep`` one in the spool below ``folder``, or ``bring`` one from there."""
    wanted = json.dumps({"deed": deed, "section": section, "folder": str(folder)})
    done = subprocess.run(
        [sys.executable, "-m", "tests.storage.dying", wanted],
        stdout=subprocess.PIPE,
        timeout=LONG_ENOUGH,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    return int(done.stdout)


def _save(section: Dict[str, Any], folder: Path, uuid: str) -> Callable[[], object]:
    store = storage.build(section, disk=str(folder / "disk"))

    def save() -> None:
        fill(store.stage(uuid))
        store.publish(uuid)

    return save


def _keep(section: Dict[str, Any], folder: Path, uuid: str) -> Callable[[], object]:
    source = Path(tempfile.mkdtemp(dir=folder))
    fill(source)
    return lambda: Spool(folder / "spool").put(uuid, source)


def _bring(section: Dict[str, Any], folder: Path, uuid: str) -> Callable[[], object]:
    _keep(section, folder, uuid)()
    store = storage.build(section, disk=str(folder / "disk"))
    return lambda: Spool(folder / "spool").move(uuid, store)


_DEEDS = {"save": _save, "keep": _keep, "bring": _bring}


def _die_at(step: int, files_count: bool) -> None:
    left = [step]

    def count() -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def heard(event: str, arguments: Any) -> None:
        if event in _CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES):
            count()

    asked = driver.Driver.again

    def again(self: driver.Driver, call: Any, patience: float) -> Any:
        count()
        return asked(self, call, patience)

    driver.Driver.again = again  # type: ignore[method-assign]
    if files_count:
        sys.addaudithook(heard)


def _die(deed: str, section: Dict[str, Any], folder: Path, step: int) -> NoReturn:
    try:
        act = _DEEDS[deed](section, folder, f"a{step}")
        _die_at(step, files_count=deed != "save" or not storage.build(section).may_be_away)
        act()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main(deed: str, section: Dict[str, Any], folder: str) -> int:
    """The number of those that died. They are forked from a process that has used nothing of a driver, and never will."""
    storage.build(section)
    for module in {"s3": ["s3fs"], "gcs": ["gcsfs"], "azure": ["adlfs"]}.get(section["type"], []):
        importlib.import_module(module)
    died = 0
    while True:
        pid = os.fork()
        if pid == 0:
            _die(deed, section, Path(folder), died + 1)
        status = os.waitpid(pid, 0)[1]
        if status == 0:
            return died
        if not os.WIFSIGNALED(status):
            sys.exit(f"{deed} of a{died + 1} failed")
        died += 1


if __name__ == "__main__":
    print(main(**json.loads(sys.argv[1])))
