"""Containers without Slurm: on this machine, and in a script that needs no master."""

from __future__ import annotations

import shutil

import pytest
import yaml

from tests.containers_root import debian_root
from tests.e2e.conftest import User


@pytest.fixture
def contained(user: User) -> User:
    if shutil.which("ch-run") is None:
        pytest.skip("charliecloud is not installed: scripts/packages.sh")
    container = {"runtime": "charliecloud", "image": str(debian_root())}
    user.home.mkdir(exist_ok=True)
    (user.home / "site.yaml").write_text(yaml.safe_dump({"pools": {"default": {"container": container}}}))
    user.write("context/startup-hook.sh", "grep -q bookworm /etc/os-release && echo in the image")
    return user


def test_a_trial_on_this_machine_runs_in_the_image(contained: User) -> None:
    experiment = contained.create(hyperparameters={"lr": 0.1, "steps": 5})
    contained.wait_state(experiment, "COMPLETED")
    assert "in the image" in contained.log(experiment)


def test_a_rendered_script_has_its_container(contained: User) -> None:
    contained.config()
    said = contained.det("experiment", "render", "config.yaml", "context")
    assert "ch-run" in said and str(debian_root()) in said
    contained.config(environment={"container_runtime": "none"})
    assert "ch-run" not in contained.det("experiment", "render", "config.yaml", "context")
