"""Two networks with a DeepSpeed engine each: one makes numbers, the other tells them from true ones."""

from typing import Any, Dict, Iterator, Optional, Union

import deepspeed
import torch
from torch import nn

from determined.pytorch import DataLoader, TorchData
from determined.pytorch.deepspeed import DeepSpeedTrial, DeepSpeedTrialContext, overwrite_deepspeed_config

REAL_LABEL, FAKE_LABEL = 1, 0


class DCGANTrial(DeepSpeedTrial):
    def __init__(self, context: DeepSpeedTrialContext) -> None:
        self.context = context
        self.hparams = context.get_hparams()
        ds_config = overwrite_deepspeed_config(
            self.hparams["deepspeed_config"], self.hparams.get("overwrite_deepspeed_args", {})
        )
        noise = self.hparams["noise_length"]
        self.generator, self.discriminator = (
            context.wrap_model_engine(
                deepspeed.initialize(model=net, model_parameters=net.parameters(), config=ds_config)[0]
            )
            for net in (
                nn.Sequential(nn.Linear(noise, 16), nn.ReLU(), nn.Linear(16, 4)),
                nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)),
            )
        )
        self.criterion = nn.BCEWithLogitsLoss()
        self.micro_batch = context.get_train_micro_batch_size_per_gpu()

    def discriminator_loss(self, numbers: torch.Tensor, label: int) -> torch.Tensor:
        scores = self.discriminator(numbers)
        return self.criterion(scores, torch.full_like(scores, label))

    def train_batch(
        self, iter_dataloader: Optional[Iterator[TorchData]], epoch_idx: int, batch_idx: int
    ) -> Union[torch.Tensor, Dict[str, Any]]:
        (real,) = self.context.to_device(next(iter_dataloader))
        noise = self.context.to_device(torch.randn(self.micro_batch, self.hparams["noise_length"]))
        fake = self.generator(noise)
        d_loss = self.discriminator_loss(real, REAL_LABEL) + self.discriminator_loss(fake.detach(), FAKE_LABEL)
        self.discriminator.backward(d_loss)
        self.discriminator.step()
        scores = self.discriminator.module(fake)  # its engine is not to see gradients that are another's
        g_loss = self.criterion(scores, torch.full_like(scores, REAL_LABEL))
        self.generator.backward(g_loss)
        self.generator.step()
        return {"g_loss": g_loss, "d_loss": d_loss}

    def evaluate_batch(self, iter_dataloader: Optional[Iterator[TorchData]], batch_idx: int) -> Dict[str, Any]:
        (real,) = self.context.to_device(next(iter_dataloader))
        return {"d_loss": self.discriminator_loss(real, REAL_LABEL)}

    def numbers(self, count: int) -> DataLoader:
        dataset = torch.utils.data.TensorDataset(torch.randn(count, 4) + 2)
        return DataLoader(dataset, batch_size=self.micro_batch, shuffle=True, num_workers=0, drop_last=True)

    def build_training_data_loader(self) -> DataLoader:
        return self.numbers(128)

    def build_validation_data_loader(self) -> DataLoader:
        return self.numbers(64)
