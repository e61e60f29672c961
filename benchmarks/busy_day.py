"""A day of a busy site through the production engine, in virtual time: what it costs Slurm, who waits, who gets what.

python benchmarks/busy_day.py [TRIALS NODES]
"""

from __future__ import annotations

import sys
import time

from dethpc.simulator.busy import busy_day


def main() -> None:
    sizes = [(int(sys.argv[1]), int(sys.argv[2]))] if len(sys.argv) == 3 else [(200, 6), (2000, 24)]
    for trials, nodes in sizes:
        began = time.process_time()
        day = busy_day(trials, nodes)
        took = time.process_time() - began
        looks = day.traffic.looks
        waits = ", ".join(f"{slots}: {wait / 60:.0f}" for slots, wait in sorted(day.longest_wait.items()))
        print(
            f"{day.completed} of {day.trials} trials completed in {day.hours:.1f} h, {day.attempts} attempts; {took:.1f} s of CPU"
        )
        print(f"  slots of the cluster used by us: {100 * day.used:.0f} %; weight 3 over weight 1: {day.shares:.2f}")
        print(f"  requests per cycle, submissions aside: mean {sum(looks) / len(looks):.1f}, most {max(looks)}")
        print(f"  lowest level of Slurm's bucket (30, 2/s): {day.traffic.lowest():.0f}")
        print(f"  looks in a row with an idle slot and a trial for it not submitted: {day.traffic.idle}")
        print(f"  longest wait in the scheduler's queue, minutes by slots of the trial: {waits}")


if __name__ == "__main__":
    main()
