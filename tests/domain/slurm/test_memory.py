"""Sizes of memory as sbatch has them."""

from __future__ import annotations

import pytest

from dethpc.domain.slurm import memory


@pytest.mark.parametrize(
    ("size", "megabytes", "of_three"),
    [
        ("16G", 16384, "48G"),
        ("8000", 8000, "24000"),
        ("8000m", 8000, "24000m"),
        ("2T", 2 << 20, "6T"),
        ("1536K", 1, "4608K"),
    ],
)
def test_a_size_is_read_and_multiplied_in_its_unit(size: str, megabytes: int, of_three: str) -> None:
    assert memory.is_size(size)
    assert (memory.megabytes(size), memory.times(size, 3)) == (megabytes, of_three)


@pytest.mark.parametrize("size", ["", "G", "8GB", "1.5G", "-1", "8 G", "\u0663G"])
def test_what_sbatch_does_not_take_is_no_size(size: str) -> None:
    assert not memory.is_size(size)
    with pytest.raises(ValueError, match="such as 8G"):
        memory.megabytes(size)
