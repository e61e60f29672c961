"""A network for handwritten digits, as DeepSpeedTrials: whole on each slot, and with its layers shared out."""

import deepspeed
import torch
from deepspeed.pipe import PipelineModule
from sklearn.datasets import load_digits
from torch import nn

from determined import pytorch
from determined.pytorch import deepspeed as det_ds


def dataset(training: bool) -> torch.utils.data.TensorDataset:
    """Every fifth digit is held out."""
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    chosen = (torch.arange(len(labels)) % 5 != 0) == training
    return torch.utils.data.TensorDataset(images[chosen], labels[chosen])


def layers(hidden: int, dropout: float) -> list:
    return [nn.Linear(64, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, hidden), nn.ReLU()] + [
        nn.Linear(hidden, 10)
    ]


class DigitsTrial(det_ds.DeepSpeedTrial):
    def __init__(self, context: det_ds.DeepSpeedTrialContext) -> None:
        self.context = context
        hparams = context.get_hparams()
        model = self.model(layers(hparams["hidden"], hparams["dropout"]))
        config = det_ds.overwrite_deepspeed_config(
            hparams["deepspeed_config"], hparams.get("overwrite_deepspeed_args", {})
        )
        engine, *_ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=config)
        self.engine = context.wrap_model_engine(engine)
        self.loss = nn.CrossEntropyLoss()
        self.accuracy = context.wrap_reducer(self.share, name="accuracy", for_training=False)

    def model(self, layers: list) -> nn.Module:
        return nn.Sequential(*layers)

    @staticmethod
    def share(counts: list) -> float:
        return sum(correct for correct, _ in counts) / max(1, sum(records for _, records in counts))

    def build_training_data_loader(self) -> pytorch.DataLoader:
        size = self.context.get_train_micro_batch_size_per_gpu()
        return pytorch.DataLoader(dataset(training=True), batch_size=size, shuffle=True, drop_last=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        size = self.context.get_train_micro_batch_size_per_gpu()
        return pytorch.DataLoader(dataset(training=False), batch_size=size, drop_last=True)

    def train_batch(self, dataloader_iter, epoch_idx: int, batch_idx: int) -> dict:
        images, labels = self.context.to_device(next(dataloader_iter))
        loss = self.loss(self.engine(images), labels)
        self.engine.backward(loss)
        self.engine.step()
        return {"loss": loss}

    def evaluate_batch(self, dataloader_iter, batch_idx: int) -> dict:
        images, labels = self.context.to_device(next(dataloader_iter))
        output = self.engine(images)
        self.accuracy.update((int((output.argmax(1) == labels).sum()), len(labels)))
        return {"validation_loss": self.loss(output, labels)}


class DigitsPipelineTrial(DigitsTrial):
    def model(self, layers: list) -> nn.Module:
        stages = self.context.distributed.get_size()
        return PipelineModule(layers=layers, loss_fn=nn.CrossEntropyLoss(), num_stages=stages)

    def train_batch(self, dataloader_iter, epoch_idx: int, batch_idx: int) -> dict:
        return {"loss": self.engine.train_batch(dataloader_iter)}

    def evaluate_batch(self, dataloader_iter, batch_idx: int) -> dict:
        return {"validation_loss": self.engine.eval_batch(dataloader_iter)}
