"""Lightning with a callback of the script's own over the Core API."""

import logging
import pathlib

import lightning.pytorch as pl
import torch
from torch import nn

import determined as det


class LitMNIST(pl.LightningModule):
    def __init__(self, hidden_size, learning_rate):
        super().__init__()
        self.save_hyperparameters()
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(64, hidden_size), nn.ReLU(), nn.Linear(hidden_size, 4))

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        scores = self.model(images)
        self.log("val_loss", nn.functional.cross_entropy(scores, labels))
        self.log("val_acc", (scores.argmax(1) == labels).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.learning_rate)


class DeterminedCallback(pl.callbacks.Callback):
    def __init__(self, core_context):
        self.core_context = core_context

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.global_step % 4 == 0:
            loss = outputs["loss"].item()
            self.core_context.train.report_training_metrics(steps_completed=trainer.global_step, metrics={"loss": loss})

    def on_validation_end(self, trainer, module):
        if trainer.sanity_checking:
            return
        metrics = {name: value.item() for name, value in trainer.callback_metrics.items() if name.startswith("val_")}
        self.core_context.train.report_validation_metrics(steps_completed=trainer.global_step, metrics=metrics)

    def on_train_epoch_end(self, trainer, module):
        self.core_context.train.report_progress((trainer.current_epoch + 1) / trainer.max_epochs)
        with self.core_context.checkpoint.store_path({"steps_completed": trainer.global_step}) as (path, uuid):
            trainer.save_checkpoint(path / "model.ckpt")
        if self.core_context.preempt.should_preempt():
            trainer.should_stop = True


def loader(count, seed, **options):
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (count,), generator=draw)
    images = torch.rand(count, 8, 8, generator=draw)
    for image, label in zip(images, labels):
        image[2 * label : 2 * label + 2] += 1
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), batch_size=32, **options)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    info = det.get_cluster_info()
    with det.core.init() as core_context:
        pl.seed_everything(info.trial.trial_seed)
        trainer = pl.Trainer(
            max_epochs=3,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            callbacks=[DeterminedCallback(core_context)],
        )
        model, path = LitMNIST(**info.trial.hparams), None
        fit = {"train_dataloaders": loader(128, 1, shuffle=True), "val_dataloaders": loader(64, 2)}
        if info.latest_checkpoint is None:
            trainer.fit(model, **fit)
        else:
            with core_context.checkpoint.restore_path(info.latest_checkpoint) as path:
                trainer.fit(model, ckpt_path=pathlib.Path(path) / "model.ckpt", **fit)
