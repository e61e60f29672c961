"""Which processes descend from one that adopts orphans."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import os, signal, subprocess
from dethpc.exec.supervision import processes

looked = []
listdir = os.listdir
os.listdir = lambda path: looked.append(path) or listdir(path)
assert processes.adopt_orphans()
assert processes.descendants() == [] and looked == []
shell = subprocess.Popen(["/bin/sh", "-c", "sleep 3600 & echo $!"], stdout=subprocess.PIPE)
orphan = int(shell.stdout.readline())
shell.wait()
assert processes.descendants() == [orphan] and looked == ["/proc"]
os.kill(orphan, signal.SIGKILL)
os.waitpid(orphan, 0)
assert processes.descendants() == [] and looked == ["/proc"]
"""


def test_the_processes_of_a_node_are_looked_at_only_while_a_child_is_left() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
