import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

import determined as det
from determined.lightning import DeterminedCallback

info = det.get_cluster_info()
kind = info.trial.hparams["kind"]


def batches(n, seed):
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(seed))
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=2)


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 1)

    def loss(self, batch):
        return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

    def training_step(self, batch, index):
        loss = self.loss(batch)
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self.loss(batch))

    def test_step(self, batch, index):
        self.log("test_loss", self.loss(batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.05)


own = [] if kind == "nomc" else [ModelCheckpoint("mc", monitor="val_loss"), EarlyStopping("val_loss", patience=2)]
with det.core.init() as core:
    ours = DeterminedCallback(core, checkpoint=info.latest_checkpoint, continue_id=info.trial.trial_id)
    callbacks = [*own, ours] if kind == "bestlast" else [ours, *own]
    trainer = pl.Trainer(
        callbacks=callbacks, max_epochs=4, accelerator="cpu", enable_progress_bar=False, log_every_n_steps=2
    )
    model = Model()
    trainer.fit(model, batches(16, 0), batches(4, 1), ckpt_path=ours.restore())
    print("best path", trainer.checkpoint_callback.best_model_path)
    print("tested", trainer.test(model, batches(4, 5), ckpt_path="best", verbose=False))
