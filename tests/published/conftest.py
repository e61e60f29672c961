"""One master for all that is tried here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import User, make_user, take_down

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def created(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[User, dict[str, int]]]:
    """A user of this machine who has created every experiment of these folders, and their numbers by ``folder/config``."""
    tmp = tmp_path_factory.mktemp("published")
    (tmp / "tmp").mkdir()
    user = make_user(
        tmp, DETHPC_SCHEDULER="local", DETHPC_LOCAL_SLOTS="4", OMP_NUM_THREADS="1", TMPDIR=str(tmp / "tmp")
    )
    numbers = {}
    try:
        for config in sorted(HERE.glob("*/*.yaml")):
            out = user.det("experiment", "create", str(config), str(config.parent))
            numbers[f"{config.parent.name}/{config.stem}"] = int(out.split()[-1])
        yield user, numbers
    finally:
        take_down(user)
