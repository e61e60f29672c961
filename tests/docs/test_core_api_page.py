"""docs/core-api.md names every call of the Core API."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dethpc import core

PAGE = (Path(__file__).parents[2] / "docs" / "core-api.md").read_text()
NOT_FOR_USERS = {
    "start",
    "close",
    "from_tf_config",
    "acknowledge_preemption_signal",
    "acknowledge_out_of_ops",
    "get_configured_units",
}
"""Called by ``with core.init()``, or kept for code that has them already."""


@pytest.mark.parametrize(
    "part",
    [core.TrainContext, core.CheckpointContext, core.PreemptContext, core.SearcherContext, core.DistributedContext],
)
def test_every_call_is_named(part: type) -> None:
    calls = {name for name in vars(part) if not name.startswith(("_", "get_rank", "get_size", "get_local", "get_num"))}
    forms = {name.removesuffix("_local") for name in calls} - NOT_FOR_USERS
    assert not (missing := [name for name in forms if not re.search(rf"\b{name}\b", PAGE)]), missing


@pytest.mark.parametrize("enum", [core.PreemptMode, core.DownloadMode])
def test_every_mode_is_named(enum: type) -> None:
    assert all(mode.name in PAGE for mode in enum)  # type: ignore[attr-defined]
