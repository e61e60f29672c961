"""GRES and TRES as Slurm writes and takes them. What is refused or taken here, sbatch of 22.05 refuses or takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dethpc.domain.slurm.gres import (
    Gres,
    by_type,
    gpus_of_names,
    gpus_of_node,
    of_node,
    requested,
    requested_gpus,
    requested_tres,
    written,
)
from dethpc.errors import GresError


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("(null)", {}),
        ("", {}),
        ("N/A", {}),
        ("gpu:4", {"": 4}),
        ("gpu", {"": 1}),
        ("gpu:a100", {"a100": 1}),
        ("gpu:a100:4", {"a100": 4}),
        ("gpu:3090:4", {"3090": 4}),
        ("gpu:3090:4(S:0-1)", {"3090": 4}),
        ("gpu:3090:0(IDX:N/A)", {"3090": 0}),
        ("gpu:2080ti:4", {"2080ti": 4}),
        ("gpu:1g.5gb:7,gpu:a100_1g.10gb:2", {"1g.5gb": 7, "a100_1g.10gb": 2}),
        ("gpu:nvidia_a100-sxm4-80gb:8(S:0-1)", {"nvidia_a100-sxm4-80gb": 8}),
        ("gpu:a100:4(S:0-1)", {"a100": 4}),
        ("gpu:a100:2(IDX:0,2)", {"a100": 2}),
        ("gpu:2(IDX:0-1)", {"": 2}),
        ("gpu:0", {"": 0}),
        ("gpu:a100:4(S:0-1),gpu:v100:2(S:1),nvme:1", {"a100": 4, "v100": 2}),
        ("gpu:v100:2,gpu:v100:2", {"v100": 4}),
        ("gpu:no_consume:4,tmp:no_consume:4G", {"": 4}),
        ("nvme:gpu:3", {}),
        ("craynetwork:4,gpu:1", {"": 1}),
        ("cpu=8,mem=4000M,gres/gpu:3090=2", {"3090": 2}),
        ("gres:gpu:a100:2(S:0", {"a100": 2}),
    ],
)
def test_gpus_of_a_node(text: str, counts: dict[str, int]) -> None:
    assert gpus_of_node(text) == counts


@pytest.mark.parametrize(
    ("text", "resources"),
    [
        ("none", []),
        ("gpu", [Gres("gpu")]),
        ("gpu:4", [Gres("gpu", "", 4)]),
        ("gpu:0", [Gres("gpu", "", 0)]),
        ("gpu:3090", [Gres("gpu", "", 3090)]),  # a count to Slurm, too
        ("gpu:3090:4", [Gres("gpu", "3090", 4)]),
        ("gpu:2080ti:4", [Gres("gpu", "2080ti", 4)]),
        ("gpu:a100", [Gres("gpu", "a100")]),
        ("gpu:1g.5gb:2", [Gres("gpu", "1g.5gb", 2)]),
        ("gpu:a100_1g.10gb", [Gres("gpu", "a100_1g.10gb")]),
        ("gpu:nvidia_a100-sxm4-80gb:8", [Gres("gpu", "nvidia_a100-sxm4-80gb", 8)]),
        ("gres:gpu:2", [Gres("gpu", "", 2)]),
        ("gpu:a100:2,gpu:v100:1,tmp:100G", [Gres("gpu", "a100", 2), Gres("gpu", "v100"), Gres("tmp", "", 100 << 30)]),
        ("gpu:1,gpu:2", [Gres("gpu", "", 2)]),
        ("gpu:1k", [Gres("gpu", "", 1024)]),
        ("shard:3", [Gres("shard", "", 3)]),
    ],
)
def test_requests_per_node(text: str, resources: list[Gres]) -> None:
    assert requested(text) == resources


@pytest.mark.parametrize(
    "text",
    ["", "gpu:", ":2", "gpu:3090:", "gpu:2080ti", "gpu:1g.5gb", "gpu:2(S:0-1)", "gpu:-1", "gpu::2", "gpu:3090:2:3", " ,gpu:2"]
    + ["gpu:3090:1,gpu:2", "gpu:a b", "4", "gpu:1,"],
)  # fmt: skip
def test_requests_that_slurm_would_refuse_are_errors(text: str) -> None:
    with pytest.raises(GresError):
        requested(text)


def test_a_type_that_looks_like_a_count_is_explained() -> None:
    with pytest.raises(GresError, match="write gpu:2080ti:1 for one of type 2080ti"):
        requested("gpu:2080ti")


def test_gpus_by_themselves() -> None:
    assert requested_gpus("4") == [Gres("gpu", "", 4)]
    assert requested_gpus("a100:2,v100:1") == [Gres("gpu", "a100", 2), Gres("gpu", "v100", 1)]
    assert requested_gpus("3090:1") == [Gres("gpu", "3090", 1)]
    for text in ("", "a100:2:3", "2,v100:1", "x:y", "1.5"):
        with pytest.raises(GresError):
            requested_gpus(text)


def test_trackable_resources() -> None:
    assert requested_tres("cpu=4,gres/gpu=2") == [Gres("cpu", "", 4), Gres("gpu", "", 2)]
    assert requested_tres("gres/gpu:2,cpu:4") == [Gres("gpu", "", 2), Gres("cpu", "", 4)]
    assert requested_tres("gres/gpu:3090=1") == requested_tres("gres/gpu:3090:1") == [Gres("gpu", "3090", 1)]
    assert requested_tres("license/matlab=1")[0].name == "license/matlab"


def test_pyslurms_dictionaries() -> None:
    assert gpus_of_names({"gpu:a100": 4, "gpu": 2, "tmp": 9, "gres/gpu:v100": 1}) == {"a100": 4, "": 2, "v100": 1}


NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True).filter(
    lambda name: name not in ("none", "gres", "no_consume")
)
TYPES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,8}", fullmatch=True).filter(lambda kind: kind != "no_consume")
RESOURCES = st.lists(
    st.builds(Gres, NAMES, TYPES, st.integers(0, 1 << 40)), min_size=1, unique_by=lambda each: (each.name, each.type)
)


@given(RESOURCES)
def test_what_is_written_is_read_again(resources: list[Gres]) -> None:
    assert requested(written(resources)) == resources
    assert requested_tres(written(resources)) == resources
    assert of_node(written(resources)) == resources
    assert by_type(resources) == by_type(requested(written(resources)))


@given(st.text(alphabet="gpu:=/,()0129kKtiSIDX-+. none", max_size=30) | st.text())
def test_any_text_is_read_or_refused_by_a_gres_error(text: str) -> None:
    of_node(text)
    for read in (requested, requested_gpus, requested_tres):
        try:
            read(text)
        except GresError:
            pass


@given(TYPES, st.integers(0, 99))
def test_no_type_hides_a_nodes_gpus(kind: str, count: int) -> None:
    assert sum(gpus_of_node(f"gpu:{kind}:{count}(S:0-1)").values()) == count
