"""The program in docs/custom-search.md runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import User, make_user, take_down
from tests.e2e.test_generations import OPERATIONS
from tests.waiting import LONG_ENOUGH

PAGE = (Path(__file__).parents[2] / "docs" / "custom-search.md").read_text()


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    user = make_user(tmp_path, DETHPC_SCHEDULER="local", DETHPC_LOCAL_SLOTS="4")
    yield user
    take_down(user)


def test_the_program_on_the_page_searches(user: User) -> None:
    program, _ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)  # the second runs in a job
    user.write("search.py", program)
    user.write("context/train.py", OPERATIONS)
    user.det("experiment", "list")  # starts a master
    subprocess.run([sys.executable, "search.py"], cwd=user.folder, env=user.env, check=True, timeout=LONG_ENOUGH)
    assert {trial["hparams"]["lr"]: trial["state"] for trial in user.trials(1)} == {
        0.1: "STATE_COMPLETED",
        0.01: "STATE_COMPLETED",
    }
