"""Lines tagged with their rank."""

import subprocess
import sys

from dethpc.launch import wrap_rank
from tests.launchers.conftest import launch
from tests.waiting import LONG_ENOUGH

WRAP = "determined.launch.wrap_rank"


def test_wrap_rank_prefixes_each_line() -> None:
    program = "import sys; print('a\\rb'); sys.stderr.write('c'); sys.stdout.write('\\n\\nlast')"
    done = launch(WRAP, "3", "--", sys.executable, "-c", program)
    assert done.stdout == "".join(f"[rank=3] {text}\n" for text in ("a", "b", "", "", "last"))
    assert done.stderr == "[rank=3] c\n"


def test_wrap_rank_finds_the_rank_and_passes_the_end_on() -> None:
    done = launch(WRAP, "NO_SUCH,HERE", "sh", "-c", "echo $0; exit 7", env={"HERE": "5"})
    assert (done.returncode, done.stdout) == (7, "[rank=5] sh\n")
    assert launch(WRAP, "0", "sh", "-c", "kill -9 $$").returncode == 137
    assert launch(WRAP, "0", "no-such-command").returncode == 127
    assert launch(WRAP, "NO_SUCH", "true").returncode == 2


def test_wrap_rank_may_be_run_by_its_path() -> None:
    done = subprocess.run(
        [sys.executable, wrap_rank.__file__, "3", "echo", "hi"],
        capture_output=True,
        text=True,
        timeout=LONG_ENOUGH,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[rank=3] hi\n", "")
