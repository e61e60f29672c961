"""How a master's process is set, and no other one."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROBE = """
    import gc, json, sys
    from dethpc.master import __main__ as master, daemon

    def seen(of, host, port):
        found.update(threshold=gc.get_threshold(), kept=gc.get_freeze_count(), turn=sys.getswitchinterval())
        of.lease.release()

    found, daemon.Daemon.serve = {}, seen
    sys.argv = ["master", "--home", sys.argv[1]]
    master.main()
    print(json.dumps(found))
"""


def said(code: str, *words: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(code), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_master_at_work_looks_for_garbage_seldom_and_gives_threads_their_turn_soon(tmp_path: Path) -> None:
    found = json.loads(said(PROBE, str(tmp_path)))
    assert found["threshold"][0] > 10_000 and found["kept"] > 10_000 and found["turn"] < 0.002


def test_who_imports_the_master_or_has_one_inside_keeps_their_own() -> None:
    code = "import gc, sys; was = gc.get_threshold(), sys.getswitchinterval(); import dethpc.master.serve, dethpc.master.daemon"
    assert (
        said(f"{code}; print(was == (gc.get_threshold(), sys.getswitchinterval()), gc.get_freeze_count())")
        == "True 0\n"
    )


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps its memory in its own way")
def test_a_master_at_work_holds_no_memory_that_its_start_alone_needed() -> None:
    code = """
        from dethpc.master import serve

        def held():
            with open("/proc/self/status") as status:
                return int(status.read().partition("VmRSS:")[2].split()[0])

        needed, stays = [bytes(2000) for _ in range(10_000)], bytes(2000)
        before = held()
        del needed
        serve.settle()
        print(before - held())
    """
    assert int(said(code)) > 10_000  # KiB, of 20,000
