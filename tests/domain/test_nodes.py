"""What each state of a node means for jobs."""

from __future__ import annotations

import pytest

from dethpc.domain.nodes import NodeState

USABLE = {"idle", "mixed", "allocated", "completing", "planned", "reserved"}
LEAVING = {"draining", "failing"}


@pytest.mark.parametrize("state", NodeState)
def test_node_takes_jobs_or_finishes_them_or_is_gone(state: NodeState) -> None:
    assert state.usable is (state.value in USABLE)
    assert state.gone is (state.value not in USABLE | LEAVING)
    assert str(state) == f"{state}" == state.value
