from __future__ import annotations

import pytest

from dethpc.domain.slurm import walltime


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("infinite", None),
        ("UNLIMITED", None),
        ("n/a", None),
        ("", None),
        ("1:2:3:4", None),
        ("30", 1800),
        ("1:30", 90),
        ("2:00:00", 7200),
        ("2:00:01", 7201),
        ("1-00:00:00", 86400),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("1-12:30:05", 131405),
        ("365-00:00:01", 31536001),
    ],
)
def test_a_time_is_read_as_slurm_writes_it(text: str, expected: float | None) -> None:
    assert walltime.seconds(text) == expected
