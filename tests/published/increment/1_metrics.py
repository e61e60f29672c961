"""The same, and says how it is going."""

import logging

import determined as det


def main(core_context, increment_by):
    x = 0
    for batch in range(20):
        x += increment_by
        steps_completed = batch + 1
        if steps_completed % 5 == 0:
            core_context.train.report_training_metrics(steps_completed=steps_completed, metrics={"x": x})
            logging.info(f"x is now {x}")
    core_context.train.report_validation_metrics(steps_completed=steps_completed, metrics={"x": x})


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, format=det.LOG_FORMAT)
    logging.getLogger("determined").setLevel(logging.INFO)
    with det.core.init() as core_context:
        main(core_context=core_context, increment_by=1)
