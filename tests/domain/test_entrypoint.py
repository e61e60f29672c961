"""Entrypoints that name a trial class, as the configuration and the compute node both see them."""

from __future__ import annotations

import pytest

from dethpc.domain.entrypoint import is_trial_class, trains_a_trial_class


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("model_def:MyTrial", True),
        (" package.model:Outer.Inner ", True),
        ("python3 train.py", False),
        ("model_def:", False),
        ("model_def:MyTrial.", False),
        ("9:MyTrial", False),
    ],
)
def test_trial_class_is_a_module_and_a_class(word: str, named: bool) -> None:
    assert is_trial_class(word) is named


@pytest.mark.parametrize(
    ("entrypoint", "trains"),
    [
        ("model_def:MyTrial", True),
        ("python3 -m determined.launch.torch_distributed --trial model_def:MyTrial", True),
        (["python3", "-m", "determined.launch.torch_distributed", "model_def:MyTrial"], True),
        ("python3 serve.py host:Port", False),
        (None, False),
        (7, False),
    ],
)
def test_entrypoint_may_name_a_trial_class_for_a_launcher(entrypoint: object, trains: bool) -> None:
    assert trains_a_trial_class(entrypoint) is trains
