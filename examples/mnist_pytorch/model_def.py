"""A convolutional network for handwritten digits, as a PyTorchTrial."""

import data
import torch
from torch import nn

from determined import pytorch


class MNistTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext, hparams: dict = None) -> None:
        self.context = context
        hparams = hparams or context.get_hparams()
        self.model = context.wrap_model(
            nn.Sequential(
                nn.Conv2d(1, hparams["n_filters1"], 3),
                nn.ReLU(),
                nn.Conv2d(hparams["n_filters1"], hparams["n_filters2"], 3),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Dropout2d(hparams["dropout1"]),
                nn.Flatten(),
                nn.Linear(144 * hparams["n_filters2"], 128),
                nn.ReLU(),
                nn.Dropout(hparams["dropout2"]),
                nn.Linear(128, 10),
            )
        )
        optimizer = torch.optim.Adadelta(self.model.parameters(), lr=hparams["learning_rate"])
        self.optimizer = context.wrap_optimizer(optimizer)
        context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.StepLR(self.optimizer, 1, gamma=0.7),
            pytorch.LRScheduler.StepMode.STEP_EVERY_EPOCH,
        )
        self.loss = nn.CrossEntropyLoss()

    def build_training_data_loader(self) -> pytorch.DataLoader:
        size = self.context.get_per_slot_batch_size()
        return pytorch.DataLoader(data.dataset("train"), batch_size=size, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(data.dataset("t10k"), batch_size=self.context.get_per_slot_batch_size())

    def train_batch(self, batch: pytorch.TorchData, epoch_idx: int, batch_idx: int) -> dict:
        images, labels = batch
        loss = self.loss(self.model(images), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: pytorch.TorchData, batch_idx: int) -> dict:
        images, labels = batch
        output = self.model(images)
        accuracy = (output.argmax(1) == labels).float().mean()
        return {"validation_loss": self.loss(output, labels), "accuracy": accuracy}
