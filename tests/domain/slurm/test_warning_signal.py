"""The values of sbatch's --signal."""

from __future__ import annotations

import signal

import pytest

from dethpc.domain.slurm.warning_signal import WarningSignal


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("USR1", WarningSignal(signal.SIGUSR1)),
        ("SIGUSR2@120", WarningSignal(signal.SIGUSR2, 120)),
        ("B:usr1@60", WarningSignal(signal.SIGUSR1, 60, script=True)),
        ("R:10", WarningSignal(signal.SIGUSR1, reservation=True)),
        ("RB:TERM@5", WarningSignal(signal.SIGTERM, 5, script=True, reservation=True)),
    ],
)
def test_names_numbers_times_and_flags_are_read_as_sbatch_reads_them(text: str, asked: WarningSignal) -> None:
    assert WarningSignal.parse(text) == asked
    assert WarningSignal.parse(str(asked)) == asked


@pytest.mark.parametrize("text", ["", "B:", "FOO", "B:FOO@3", "0", "99", "USR1@", "USR1@70000", "X:USR1"])
def test_what_sbatch_would_refuse_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="signal|SIGNAL|seconds"):
        WarningSignal.parse(text)
