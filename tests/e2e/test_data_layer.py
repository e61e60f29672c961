"""Trials of one experiment share a dataset, and one that is paused goes on inside the epoch."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.e2e.conftest import User, wait_until

pytest.importorskip("lmdb")
pytest.importorskip("torch")

TRIAL = '''
"""Each batch goes to a ledger: (trial, batch, its records). "hold": where the first run waits until it is asked to stop."""
import json, os, time
import torch
import determined as det
from determined import pytorch

info = det.get_cluster_info()
folder = info.trial.hparams["folder"]
hold = info.trial.hparams["hold"] if info.latest_checkpoint is None else 0
stop = os.path.join(os.path.dirname(os.environ["DETHPC_INFO"]), "stop.json")


def note(file, *words):
    with open(os.path.join(folder, file), "a") as ledger:
        ledger.write(json.dumps(words) + "\\n")


class Trial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(torch.nn.Linear(1, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01))

    def build_training_data_loader(self):
        @self.context.experimental.cache_train_dataset("numbers", "v1", shuffle=True)
        def train_set():
            note("made", info.trial.trial_id)
            for n in range(50):
                yield float(n)
                while n == 25 and len(os.listdir(os.path.join(folder, "here"))) < 2:
                    time.sleep(0.01)

        open(os.path.join(folder, "here", str(info.trial.trial_id)), "w").close()
        return pytorch.DataLoader(train_set(), batch_size=4)

    def build_validation_data_loader(self):
        @self.context.experimental.cache_validation_dataset("numbers-val", "v1")
        def validation_set():
            return [0.0, 1.0]

        return pytorch.DataLoader(validation_set(), batch_size=2)

    def train_batch(self, batch, epoch_idx, batch_idx):
        note("ledger", info.trial.trial_id, batch_idx, batch.tolist())
        loss = (self.model(batch[:, None].float() / 50) ** 2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        while batch_idx + 1 == hold and not os.path.exists(stop):
            time.sleep(0.05)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        return {"validation_loss": self.model(batch[:, None].float()).sum() ** 2}


with pytorch.init(hparams=info.trial.hparams) as context:
    pytorch.Trainer(Trial(context), context).fit(
        max_length=pytorch.Batch(26), reporting_period=pytorch.Batch(1), latest_checkpoint=info.latest_checkpoint
    )
'''


def lines(folder: Path, file: str) -> list[list[object]]:
    return [json.loads(line) for line in (folder / file).read_text().splitlines()]


def test_trials_of_one_node_make_a_dataset_once_and_one_goes_on_inside_an_epoch(user: User, tmp_path: Path) -> None:
    folder = tmp_path / "ledgers"
    (folder / "here").mkdir(parents=True)
    user.home.mkdir(exist_ok=True)
    (user.home / "site.yaml").write_text(f"data_layer: {{host_storage_path: {tmp_path}/node}}\n")
    user.write("context/train.py", TRIAL)
    experiment = user.create(
        searcher={"name": "random", "metric": "validation_loss", "max_trials": 2, "max_concurrent_trials": 2},
        hyperparameters={"folder": str(folder), "hold": 17},
        environment={"environment_variables": ["OMP_NUM_THREADS=1"]},
    )
    wait_until(lambda: (folder / "ledger").exists() and sum(line[1] == 16 for line in lines(folder, "ledger")) == 2)
    user.det("experiment", "pause", str(experiment))
    user.wait_state(experiment, "PAUSED")
    wait_until(lambda: all(trial["state"] == "STATE_PAUSED" for trial in user.trials(experiment)))
    user.det("experiment", "activate", str(experiment))
    user.det("experiment", "wait", str(experiment))

    assert len(lines(folder, "made")) == 1, user.log(experiment)
    seen = lines(folder, "ledger")
    orders = []
    for trial in user.trials(experiment):
        assert trial["state"] == "STATE_COMPLETED"
        mine = [line for line in seen if line[0] == trial["id"]]
        assert [batch for _, batch, _ in mine] == list(range(26))
        for epoch in (mine[:13], mine[13:]):
            records = [record for _, _, batch in epoch for record in batch]  # type: ignore[attr-defined]
            assert sorted(records) == list(map(float, range(50)))
            orders.append(records)
    assert len({tuple(order) for order in orders}) == 4, "each trial and each epoch has an order of its own"
    (cached,) = (tmp_path / "node").iterdir()
    assert cached.name == f"dethpc-datasets-{os.geteuid()}" and len(list(cached.glob("*/data/data.mdb"))) == 2
