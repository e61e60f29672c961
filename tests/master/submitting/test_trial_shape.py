from __future__ import annotations

import pytest

from dethpc.config.sections.resources import Slurm
from dethpc.config.site import PoolConfig
from dethpc.master.submitting.trial_shape import Shape, cores_of_task, spread, time_asked


@pytest.mark.parametrize(
    ("slots", "per_node", "expected"),
    [
        (0, 4, Shape(1, 0, "cuda")),
        (1, 4, Shape(1, 1, "cuda")),
        (4, 4, Shape(1, 4, "cuda")),
        (8, 4, Shape(2, 4, "cuda")),
        (16, 0, Shape(1, 16, "cuda")),
    ],
)
def test_slots_are_spread_over_as_few_nodes_as_hold_them(slots: int, per_node: int, expected: Shape) -> None:
    assert spread(slots, per_node, "cuda") == expected


def test_slots_that_cannot_be_spread_evenly_are_refused_with_a_way_out() -> None:
    with pytest.raises(ValueError, match=r"6 slots on nodes of 4.*multiple of 4.*slurm.slots_per_node"):
        spread(6, 4, "cuda")
    with pytest.raises(ValueError, match="use a multiple of 4 up to 8,"):
        spread(99, 4, "cuda", most=8)
    with pytest.raises(ValueError, match="use 4,"):
        spread(99, 4, "cuda", most=4)
    with pytest.raises(ValueError, match="single node"):
        spread(8, 4, "cuda", single_node=True)


def test_time_asked_is_read_from_sbatchs_options() -> None:
    assert time_asked(["--mem=4G", "--time=2:00:00"]) == 7200
    assert time_asked(["-t 30"]) == 1800 and time_asked(["--time 1-0", "-t5"]) == 300
    assert time_asked([]) is None and time_asked(["--time=soon"]) is None and time_asked(["--time-min=5"]) is None


@pytest.mark.parametrize(
    ("slot_type", "slots", "per_node", "cores"),
    [("cpu", 1, 6, 6), ("cpu", 8, 6, 8), ("cpu", 2, None, 2), ("cuda", 1, 6, 1)],
)
def test_slots_per_node_are_cores_of_a_node_where_slots_are_cores(
    slot_type: str, slots: int, per_node: int | None, cores: int
) -> None:
    assert cores_of_task(PoolConfig(), Shape(1, slots, slot_type), Slurm(slots_per_node=per_node)) == cores
