"""Clothes told apart with Keras: the callback reports, saves and stops."""

import argparse
import logging
from typing import Any, Dict, Optional

import data
import keras

import determined as det
import determined.keras


def build_model(dense1: int) -> keras.Model:
    return keras.Sequential(
        [
            keras.layers.Input((28, 28)),
            keras.layers.Flatten(),
            keras.layers.Dense(dense1, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def main(
    core_context: det.core.Context, checkpoint: Optional[str], continue_id: str, hparams: Dict[str, Any], epochs: int
) -> None:
    model = build_model(hparams["dense1"])
    model.compile(
        optimizer=keras.optimizers.Adam(name="Adam", learning_rate=hparams["lr"]),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
    )
    train_images, train_labels = data.load_training_data()
    det_cb = det.keras.DeterminedCallback(core_context, checkpoint=checkpoint, continue_id=continue_id)
    model.fit(
        train_images,
        train_labels,
        batch_size=hparams["batch_size"],
        validation_data=data.load_validation_data(),
        epochs=epochs,
        verbose=2,
        callbacks=[det_cb],
    )


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5, help="number of epochs to train for")
    args = parser.parse_args()
    info = det.get_cluster_info()
    if info is None:
        checkpoint, continue_id, hparams = None, "local-train-task", {"lr": 0.01, "dense1": 16, "batch_size": 32}
    else:
        checkpoint, continue_id, hparams = info.latest_checkpoint, info.trial.trial_id, info.trial.hparams
    with det.core.init() as core_context:
        main(core_context, checkpoint, continue_id, hparams, args.epochs)
