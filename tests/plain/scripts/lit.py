"""A Lightning module that trains on two devices."""

import os
import sys

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, index):
        return self.layer(batch[0]).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


if __name__ == "__main__":
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, num_nodes=int(sys.argv[1]), strategy="ddp", max_epochs=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Module(), DataLoader(TensorDataset(torch.randn(16, 2)), batch_size=4))
    environment = type(trainer.strategy.cluster_environment).__name__
    with open(os.path.join(os.environ["PLAIN_OUT"], "results"), "a") as file:
        print(f"rank {trainer.global_rank} of {trainer.world_size} by {environment}", file=file)
