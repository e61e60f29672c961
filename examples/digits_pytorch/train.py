"""Train a small convolutional network on scikit-learn's handwritten digits through the Core API.

Runs as a trial of an experiment, and by itself: ``python3 train.py``. A trial that was stopped goes on from its latest
checkpoint, and ends with the very weights that an undisturbed one would have.
"""

import logging
import pathlib

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import determined as det

DEFAULTS = {"lr": 0.003, "dropout": 0.2, "hidden": 64, "activation": "relu", "batch_size": 64, "epochs": 30}
ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh}


def data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Training images (1347, 1, 8, 8) in 0..1 and their digits (1347,), then the validation set's (450)."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    rows = torch.arange(len(labels))
    train, held_out = train_test_split(rows.numpy(), test_size=0.25, random_state=0, stratify=digits.target)
    return images[train], labels[train], images[held_out], labels[held_out]


def network(hparams: dict) -> nn.Module:
    activation = ACTIVATIONS[hparams["activation"]]
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        activation(),
        nn.Conv2d(16, 32, 3, padding=1),
        activation(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, hparams["hidden"]),
        activation(),
        nn.Dropout(hparams["dropout"]),
        nn.Linear(hparams["hidden"], 10),
    )


def save(path: pathlib.Path, model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epoch": epoch,
        "rng": torch.get_rng_state(),
    }
    torch.save(state, path / "state.pt")


def load(path: pathlib.Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Returns the number of epochs that the checkpoint has behind it."""
    state = torch.load(path / "state.pt", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"])
    return int(state["epoch"])


def train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor, size: int
) -> tuple[float, int]:
    """One pass in random order. Returns the mean loss and the number of steps."""
    model.train()
    batches = torch.randperm(len(labels)).split(size)
    total = 0.0
    for batch in batches:
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch)
    return total / len(labels), len(batches)


@torch.no_grad()
def validate(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> dict:
    model.eval()
    scores = model(images)
    return {
        "validation_loss": nn.functional.cross_entropy(scores, labels).item(),
        "validation_accuracy": (scores.argmax(dim=1) == labels).float().mean().item(),
    }


def main(core_context: det.core.Context) -> None:
    info = det.get_cluster_info()
    hparams = {**DEFAULTS, **(info.trial.hparams if info else {})}
    torch.set_num_threads(1)
    torch.manual_seed(info.trial.trial_seed if info else 0)

    images, labels, held_out_images, held_out_labels = data()
    model = network(hparams)
    optimizer = torch.optim.Adam(model.parameters(), lr=hparams["lr"])

    done = 0
    if info and info.latest_checkpoint:
        with core_context.checkpoint.restore_path(info.latest_checkpoint) as path:
            done = load(path, model, optimizer)
        logging.info("going on after epoch %d", done)

    for epoch in range(done + 1, hparams["epochs"] + 1):
        loss, batches = train_epoch(model, optimizer, images, labels, hparams["batch_size"])
        steps = epoch * batches
        metrics = validate(model, held_out_images, held_out_labels)
        core_context.train.report_training_metrics(steps_completed=steps, metrics={"loss": loss})
        core_context.train.report_validation_metrics(steps_completed=steps, metrics=metrics)
        core_context.train.report_progress(epoch / hparams["epochs"])
        logging.info("epoch %d: loss %.4f, validation accuracy %.4f", epoch, loss, metrics["validation_accuracy"])

        with core_context.checkpoint.store_path({"steps_completed": steps}) as (path, _):
            save(path, model, optimizer, epoch)
        if core_context.preempt.should_preempt():
            logging.info("asked to stop after epoch %d", epoch)
            return


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    with det.core.init() as context:
        main(context)
