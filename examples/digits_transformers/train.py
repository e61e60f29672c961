"""Train a tiny vision transformer on scikit-learn's handwritten digits with transformers' Trainer.

The model is made from a configuration, so nothing is downloaded. Runs as a trial of an experiment, on one slot or several, and
by itself: ``python3 train.py``. A trial that was stopped, after any step, goes on there.
"""

import logging
import os

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

import determined as det
from determined.transformers import DetCallback

DEFAULTS = {"lr": 0.003, "batch_size": 64, "epochs": 5}


def data() -> tuple[list, list]:
    """Training and validation sets: images (1, 8, 8) in -1..1 with their digits."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 8 - 1
    records = [{"pixel_values": image, "labels": int(label)} for image, label in zip(images, digits.target)]
    train, held_out = train_test_split(records, test_size=0.25, random_state=0, stratify=digits.target)
    return train, held_out


def network() -> ViTForImageClassification:
    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=8,
        patch_size=2,
        num_channels=1,
        num_labels=10,
    )
    return ViTForImageClassification(config)


def accuracy(evaluated) -> dict:
    return {"accuracy": float(np.mean(evaluated.predictions.argmax(axis=1) == evaluated.label_ids))}


def main(core_context: det.core.Context) -> None:
    info = det.get_cluster_info()
    hparams = {**DEFAULTS, **(info.trial.hparams if info else {})}
    args = TrainingArguments(
        output_dir="out",
        num_train_epochs=hparams["epochs"],
        per_device_train_batch_size=hparams["batch_size"],
        per_device_eval_batch_size=450,
        learning_rate=hparams["lr"],
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_steps=10,
        report_to=[],
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
        seed=info.trial.trial_seed % 2**32 if info else 0,
    )
    torch.manual_seed(args.seed)
    train, held_out = data()
    trainer = Trainer(
        network(),
        args,
        train_dataset=train,
        eval_dataset=held_out,
        compute_metrics=accuracy,
        callbacks=[DetCallback(core_context, args)],
    )
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    torch.set_num_threads(1)
    launched = "RANK" in os.environ
    workers = det.core.DistributedContext.from_torch_distributed() if launched else None
    with det.core.init(distributed=workers) as context:
        main(context)
