"""Train it by a Trainer: as a trial of an experiment, or by itself (``python3 train.py``)."""

import logging

import model_def

import determined as det
from determined import pytorch
from determined.pytorch import deepspeed as det_ds

HPARAMS = {"hidden": 64, "dropout": 0.1, "deepspeed_config": "ds_config.json"}


def main() -> None:
    info = det.get_cluster_info()
    hparams = HPARAMS if info is None else info.trial.hparams
    with det_ds.init(hparams=hparams) as context:
        trainer = det_ds.Trainer(model_def.DigitsTrial(context), context)
        trainer.fit(
            max_length=pytorch.Epoch(4),
            validation_period=pytorch.Epoch(1),
            checkpoint_policy="all",
            latest_checkpoint=info.latest_checkpoint if info else None,
        )


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    main()
