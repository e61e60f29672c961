"""Train a small convolutional network on scikit-learn's handwritten digits with Keras, on any of its backends.

Runs as a trial of an experiment, and by itself: ``python3 train.py``. A trial that was stopped goes on after its last epoch; on
the torch backend it ends with the very weights that an undisturbed one would have.
"""

import logging
import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import determined as det
from determined.keras import DeterminedCallback

DEFAULTS = {"lr": 0.003, "dropout": 0.2, "batch_size": 64, "epochs": 10}


def data() -> list:
    """Training images (1347, 8, 8, 1) in 0..1, the validation set's (450, 8, 8, 1), their digits."""
    digits = load_digits()
    images = digits.images[..., None].astype("float32") / 16
    return train_test_split(images, digits.target, test_size=0.25, random_state=0, stratify=digits.target)


def network(hparams: dict) -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(2),
            keras.layers.Flatten(),
            keras.layers.Dropout(hparams["dropout"]),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(hparams["lr"]), loss, metrics=["accuracy"])
    return model


def main(core_context: det.core.Context) -> None:
    info = det.get_cluster_info()
    hparams = {**DEFAULTS, **(info.trial.hparams if info else {})}
    keras.utils.set_random_seed(info.trial.trial_seed % 2**32 if info else 0)
    images, held_out_images, labels, held_out_labels = data()
    model = network(hparams)
    plateau = keras.callbacks.ReduceLROnPlateau(monitor="val_loss", patience=2)
    callback = DeterminedCallback(
        core_context,
        checkpoint=info.latest_checkpoint if info else None,
        continue_id=info.trial.trial_id if info else "by hand",
        stateful_callbacks=[plateau],
    )
    model.fit(
        images,
        labels,
        validation_data=(held_out_images, held_out_labels),
        batch_size=hparams["batch_size"],
        epochs=hparams["epochs"],
        callbacks=[plateau, callback],
    )


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    if keras.backend.backend() == "torch":
        import torch

        torch.set_num_threads(1)
    with det.core.init() as context:
        main(context)
