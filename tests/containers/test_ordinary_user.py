"""Containers as an ordinary Unix user starts them, without Slurm: mounts, ids, signals, and nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dethpc.containers import RUNTIMES, Bind, Env, Extras
from tests import processes
from tests.containers_root import readable_root
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

NOBODY = 65534
PROGRAMS = {"apptainer": "apptainer", "charliecloud": "ch-run"}
TELLS = """
import json, os, signal, sys, time
def tried(path):
    try:
        open(path + "/written", "w").close()
        return "written"
    except OSError as error:
        return error.strerror
print(json.dumps([os.getuid(), os.getgid(), tried("/data/ro"), tried("/data/rw"), os.getcwd(), sys.argv[1]]), flush=True)
"""
WAITS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b"told\\n"))
os.write(1, b"ready\\n")
while True:
    time.sleep(60.987)
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """One that everybody may enter."""
    if os.geteuid():
        pytest.skip("root alone becomes another user")
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def image(folder: Path) -> Path:
    return readable_root(folder)


@pytest.fixture(params=list(PROGRAMS))
def runtime(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if shutil.which(PROGRAMS[name]) is None:
        pytest.skip(f"{name} is not installed: scripts/packages.sh")
    return name


def started(
    runtime: str, image: Path, code: str, *words: str, binds: list[Bind] | None = None
) -> subprocess.Popen[str]:
    command = ["python3", "-c", code, *words]
    wrapped = RUNTIMES[runtime].wrap(str(image), command, binds or [], Env(), "", Extras(workdir="/var"))
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    env = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/tmp", "USER": "nobody"}
    return subprocess.Popen([*user, *wrapped.command], env=env, cwd="/", stdout=subprocess.PIPE, text=True)


def test_it_sees_its_mounts_and_is_itself(folder: Path, image: Path, runtime: str) -> None:
    place = Path(tempfile.mkdtemp(dir=folder))
    place.chmod(0o755)
    for name in ("ro", "rw"):
        (place / name).mkdir()
        (place / name).chmod(0o777)
    binds = [Bind(str(place / name), f"/data/{name}", read_only=name == "ro") for name in ("ro", "rw")]
    odd = "a\nb'\"$c`d`\\"
    process = started(runtime, image, TELLS, odd, binds=binds)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert json.loads(out) == [NOBODY, NOBODY, "Read-only file system", "written", "/var", odd]
    assert (place / "rw" / "written").exists() and not list((place / "ro").iterdir())
    assert not (image / "data").exists(), "the image is as it was"


def test_signals_reach_it_and_nothing_is_left(image: Path, runtime: str) -> None:
    before = Path("/proc/mounts").read_text()
    process = started(runtime, image, WAITS)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == "told\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 7
    wait_until(lambda: waiting() == [])
    assert Path("/proc/mounts").read_text() == before


def test_a_kill_of_the_task_ends_what_is_inside(image: Path, runtime: str) -> None:
    process = started(runtime, image, WAITS)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.kill()
    process.wait(120)
    wait_until(lambda: waiting() == [])


def waiting() -> list[int]:
    found = []
    for path in processes.files("cmdline"):
        try:
            if b"60.987" in path.read_bytes() and path.stat().st_uid == NOBODY:
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found
