#!/usr/bin/env python3

import logging

import determined
from determined.experimental import core_v2


def main():
    logging.basicConfig(format=determined.LOG_FORMAT)
    core_v2.init(
        config=core_v2.Config(
            name="unmanaged-singleton",
            labels=["published"],
            hparams={"factor": 2},
            workspace="Nobody made it",
            project="Nor this one",
        ),
    )
    factor = core_v2.info.trial.hparams["factor"]
    for i in range(10):
        core_v2.train.report_training_metrics(steps_completed=i, metrics={"loss": factor * i})
        if (i + 1) % 5 == 0:
            core_v2.train.report_validation_metrics(steps_completed=i, metrics={"loss": i / 2})
            core_v2.train.report_progress(i / 10)
            with core_v2.checkpoint.store_path({"steps_completed": i}) as (path, uuid):
                (path / "state").write_text(str(i))
    print("see", core_v2.url_reverse_webui_exp_view())
    core_v2.close()


if __name__ == "__main__":
    main()
