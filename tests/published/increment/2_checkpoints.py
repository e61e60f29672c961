"""The same, and goes on where it stopped; another trial takes over x, not the count of batches."""

import logging
import pathlib
import time

import determined as det


def save_state(x, steps_completed, trial_id, checkpoint_directory):
    with checkpoint_directory.joinpath("state").open("w") as f:
        f.write(f"{x},{steps_completed},{trial_id}")


def load_state(trial_id, checkpoint_directory):
    with pathlib.Path(checkpoint_directory).joinpath("state").open("r") as f:
        x, steps_completed, of_trial = [int(field) for field in f.read().split(",")]
    return (x, steps_completed) if of_trial == trial_id else (x, 0)


def main(core_context, latest_checkpoint, trial_id, increment_by):
    x, starting_batch = 0, 0
    if latest_checkpoint is not None:
        with core_context.checkpoint.restore_path(latest_checkpoint) as path:
            x, starting_batch = load_state(trial_id, path)
        logging.info(f"going on from batch {starting_batch} with {x}")
    for batch in range(starting_batch, 60):
        x += increment_by
        steps_completed = batch + 1
        time.sleep(0.05)
        if steps_completed % 5 == 0:
            core_context.train.report_training_metrics(steps_completed=steps_completed, metrics={"x": x})
            core_context.train.report_progress(steps_completed / 60.0)
            with core_context.checkpoint.store_path({"steps_completed": steps_completed}) as (path, uuid):
                save_state(x, steps_completed, trial_id, path)
            if core_context.preempt.should_preempt():
                return
    core_context.train.report_validation_metrics(steps_completed=steps_completed, metrics={"x": x})


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    info = det.get_cluster_info()
    assert info is not None, "only on a cluster"
    with det.core.init() as core_context:
        main(core_context, info.latest_checkpoint, info.trial.trial_id, increment_by=1)
