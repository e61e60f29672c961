#!/usr/bin/env python3
"""Goes on with the trial of this name wherever an earlier run left it."""

import logging
import random
import sys

import determined
from determined.experimental import core_v2


def main(last):
    logging.basicConfig(format=determined.LOG_FORMAT)
    name = "unmanaged-checkpoints"
    core_v2.init(
        defaults=core_v2.DefaultConfig(name=name, hparams={"seed": 3}),
        unmanaged=core_v2.UnmanagedConfig(external_experiment_id=f"{name}-exp", external_trial_id=f"{name}-trial"),
    )
    initial_i = 0
    latest_checkpoint = core_v2.info.latest_checkpoint
    if latest_checkpoint is not None:
        with core_v2.checkpoint.restore_path(latest_checkpoint) as path:
            initial_i = int((path / "state").read_text()) + 1
    print("Last checkpoint iteration:", initial_i)
    for i in range(initial_i, last):
        core_v2.train.report_training_metrics(steps_completed=i, metrics={"loss": random.random()})
        if (i + 1) % 5 == 0:
            with core_v2.checkpoint.store_path({"steps_completed": i}) as (path, uuid):
                with (path / "state").open("w") as fout:
                    fout.write(f"{i}")
    core_v2.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
