"""Train a small convolutional network on scikit-learn's handwritten digits with Lightning.

Runs as a trial of an experiment, and by itself: ``python3 train.py``. A trial that was stopped goes on after its last epoch, and
ends with the very weights that an undisturbed one would have.
"""

import logging

import lightning.pytorch as pl
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import determined as det
from determined.lightning import DeterminedCallback

DEFAULTS = {"lr": 0.003, "dropout": 0.2, "batch_size": 64, "epochs": 10}


class Digits(pl.LightningDataModule):
    """Images (N, 1, 8, 8) in 0..1 and their digits (N,)."""

    def __init__(self, batch_size: int) -> None:
        super().__init__()
        self.batch_size = batch_size
        digits = load_digits()
        images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
        everything = torch.utils.data.TensorDataset(images, torch.tensor(digits.target))
        rows = list(range(len(digits.target)))
        train, held_out = train_test_split(rows, test_size=0.25, random_state=0, stratify=digits.target)
        self.train = torch.utils.data.Subset(everything, train)
        self.held_out = torch.utils.data.Subset(everything, held_out)

    def train_dataloader(self) -> torch.utils.data.DataLoader:
        return torch.utils.data.DataLoader(self.train, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self) -> torch.utils.data.DataLoader:
        return torch.utils.data.DataLoader(self.held_out, batch_size=450)


class Network(pl.LightningModule):
    def __init__(self, lr: float, dropout: float) -> None:
        super().__init__()
        self.lr = lr
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(16 * 4 * 4, 10),
        )

    def training_step(self, batch: list, batch_idx: int) -> torch.Tensor:
        images, labels = batch
        loss = nn.functional.cross_entropy(self.layers(images), labels)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: list, batch_idx: int) -> None:
        images, labels = batch
        scores = self.layers(images)
        self.log("validation_loss", nn.functional.cross_entropy(scores, labels))
        self.log("validation_accuracy", (scores.argmax(dim=1) == labels).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def main(core_context: det.core.Context) -> None:
    info = det.get_cluster_info()
    hparams = {**DEFAULTS, **(info.trial.hparams if info else {})}
    pl.seed_everything(info.trial.trial_seed % 2**32 if info else 0, verbose=False)
    callback = DeterminedCallback(
        core_context,
        checkpoint=info.latest_checkpoint if info else None,
        continue_id=info.trial.trial_id if info else "by hand",
    )
    trainer = pl.Trainer(
        max_epochs=hparams["epochs"],
        callbacks=[callback],
        logger=False,  # the callback brings its own
        log_every_n_steps=10,
        enable_progress_bar=False,
    )
    network = Network(hparams["lr"], hparams["dropout"])
    trainer.fit(network, datamodule=Digits(hparams["batch_size"]), ckpt_path=callback.restore())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    torch.set_num_threads(1)
    with det.core.init() as context:
        main(context)
