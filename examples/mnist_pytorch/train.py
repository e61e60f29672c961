"""Train it by a Trainer: as a trial of an experiment, or by itself (``python3 train.py``)."""

import logging

import model_def

import determined as det
from determined import pytorch

HPARAMS = {
    "global_batch_size": 64,
    "learning_rate": 1.0,
    "n_filters1": 8,
    "n_filters2": 16,
    "dropout1": 0.25,
    "dropout2": 0.5,
}


def main() -> None:
    info = det.get_cluster_info()
    hparams = HPARAMS if info is None else info.trial.hparams
    with pytorch.init(hparams=hparams) as context:
        trainer = pytorch.Trainer(model_def.MNistTrial(context), context)
        trainer.fit(
            max_length=pytorch.Epoch(3),
            validation_period=pytorch.Epoch(1),
            checkpoint_policy="all",
            latest_checkpoint=info.latest_checkpoint if info else None,
        )


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    main()
