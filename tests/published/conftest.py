"""One master for all that is tried here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import User, make_user, take_down

HERE = Path(__file__).parent

RARE = {
    *("mnist_trainer/distributed", "mnist_trial/nested_launcher", "mnist_trial/nested_object", "mnist_trial/adaptive"),
    *("core_search/dist_random", "core_search/grid", "deepspeed_gan/const", "hf_language_modeling/const"),
    *("imagenet_core/distributed", "batch_inference/distributed", "mnist_trial/distributed"),
}
"""Each takes a minute of a processor, and trains as another does that is always tried."""


@pytest.fixture(scope="module")
def created(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[User, dict[str, int]]]:
    """A user of this machine who has created the experiments of these folders that are tried; their numbers by
    ``folder/config``."""
    tmp = tmp_path_factory.mktemp("published")
    (tmp / "tmp").mkdir()
    user = make_user(
        tmp, DETHPC_SCHEDULER="local", DETHPC_LOCAL_SLOTS="4", OMP_NUM_THREADS="1", TMPDIR=str(tmp / "tmp")
    )
    numbers = {}
    try:
        for config in sorted(HERE.glob("*/*.yaml")):
            name = f"{config.parent.name}/{config.stem}"
            if name in RARE and not request.config.getoption("--everything"):
                continue
            out = user.det("experiment", "create", str(config), str(config.parent))
            numbers[name] = int(out.split()[-1])
        yield user, numbers
    finally:
        take_down(user)
