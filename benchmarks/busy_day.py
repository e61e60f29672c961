"""A day of a busy site through the production engine, in virtual time: what it costs Slurm, who waits, who gets what.

Other users' jobs hold half of the slots. Our trials come in eight experiments of 1 to 16 slots, in a priority pool and a fair-share
pool. Jobs are preempted, nodes fail, jobs vanish. The longest waits are behind other users' jobs; fair shares need time to even
out, which a small day does not give them.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator

from benchmarks.frame import Figure, Row, run
from dethpc.simulator.busy import busy_day


def rows(options: argparse.Namespace) -> Iterator[Row]:
    for trials, nodes in [(200, 6)] if options.quick else [(200, 6), (2000, 24)]:
        day = busy_day(trials, nodes)
        looks, size = day.traffic.looks, f"{trials:,} trials"
        yield Row(f"{size}: completed", "trials", Figure(day.completed), limit=trials, rule=">=")
        yield Row(
            f"{size}: requests a cycle, submissions aside",
            "",
            Figure(statistics.mean(looks)),
            note=f"at most {max(looks)}",
        )
        yield Row(
            f"{size}: lowest level of Slurm's bucket (30, 2/s)",
            "requests",
            Figure(day.traffic.lowest()),
            limit=1,
            rule=">=",
        )
        yield Row(
            f"{size}: looks in a row with an idle slot and a trial for it not submitted",
            "",
            Figure(day.traffic.idle),
            limit=1,
        )
        yield Row(
            f"{size}: what weight 3 gets over weight 1", "times", Figure(day.shares), note=f"in {day.hours:.1f} h"
        )
        longest = max(day.longest_wait.values()) / 60
        yield Row(f"{size}: longest wait in the scheduler's queue", "min", Figure(longest))


if __name__ == "__main__":
    run(__doc__, rows)
