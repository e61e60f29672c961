import argparse
import logging
import pathlib
from typing import Any, Dict

import data
import model
import torch
import yaml
from torch import nn

import determined as det
from determined import pytorch


class MNistTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext, hparams: Dict) -> None:
        self.context = context
        self.data_dir = pathlib.Path("data")
        self.per_slot_batch_size = 64 // self.context.distributed.get_size()
        self.loss_fn = nn.NLLLoss()
        self.model = self.context.wrap_model(model.build_model(hparams=hparams))
        self.optimizer = self.context.wrap_optimizer(
            torch.optim.Adadelta(self.model.parameters(), lr=hparams["learning_rate"])
        )

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(data.get_dataset(self.data_dir, train=True), batch_size=self.per_slot_batch_size)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(data.get_dataset(self.data_dir, train=False), batch_size=self.per_slot_batch_size)

    def train_batch(self, batch: pytorch.TorchData, epoch_idx: int, batch_idx: int) -> Dict[str, torch.Tensor]:
        batch_data, labels = batch
        loss = self.loss_fn(self.model(batch_data), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: pytorch.TorchData, batch_idx: int) -> Dict[str, Any]:
        batch_data, labels = batch
        output = self.model(batch_data)
        pred = output.argmax(dim=1, keepdim=True)
        accuracy = pred.eq(labels.view_as(pred)).sum().item() / len(batch_data)
        return {"validation_loss": self.loss_fn(output, labels).item(), "accuracy": accuracy}


def run(max_length: pytorch.TrainUnit, local: bool) -> None:
    info = det.get_cluster_info()
    if local:
        hparams = yaml.safe_load(pathlib.Path("./const.yaml").read_text())["hyperparameters"]
        latest_checkpoint = None
    else:
        hparams = info.trial.hparams
        latest_checkpoint = info.latest_checkpoint
    with pytorch.init() as train_context:
        trial = MNistTrial(train_context, hparams=hparams)
        trainer = pytorch.Trainer(trial, train_context)
        trainer.fit(max_length=max_length, latest_checkpoint=latest_checkpoint, validation_period=pytorch.Batch(5))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int)
    parser.add_argument("--epochs", type=int)
    args = parser.parse_args()
    max_length = pytorch.Batch(args.batches or 10) if args.epochs is None else pytorch.Epoch(args.epochs)
    run(max_length, local=det.get_cluster_info() is None)
