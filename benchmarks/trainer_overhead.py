"""What the Trainer adds to a bare PyTorch loop of the same model: less than 2 % of steps of some 5 ms.

    python benchmarks/trainer_overhead.py [--batches 100] [--pairs 20]

Both train in this process on the same data, in turns and in changing order; the median of the pairs' ratios is told, with the
quartiles. On CPUs the clock is the processor time of this process, so that other work on the machine counts little. The loops
differ in what the Trainer is for: reports, looks whether to stop, resumable data.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from determined import pytorch

WIDTH, BATCH = 512, 64
clock = time.perf_counter if torch.cuda.is_available() else time.process_time


def data(batches: int, width: int) -> torch.utils.data.TensorDataset:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batches * BATCH, width, generator=generator)
    return torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())


def network(layers: int, dataset: Any) -> nn.Module:
    width = dataset.tensors[0].shape[1]
    hidden = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(width, 2))


class Trial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext, layers: int, dataset: Any) -> None:
        self.context, self.dataset = context, dataset
        self.model = context.wrap_model(network(layers, dataset))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01))
        self.times: list[float] = []

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(self.dataset, batch_size=BATCH, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(torch.utils.data.Subset(self.dataset, range(BATCH)), batch_size=BATCH)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.times.append(clock())
        x, y = batch
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"loss": nn.functional.cross_entropy(self.model(batch[0]), batch[1])}


def bare(layers: int, dataset: Any, batches: int) -> float:
    """Seconds from the first batch to the last."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = network(layers, dataset).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH, shuffle=True)
    times: list[float] = []
    losses = []
    while len(times) < batches:
        for x, y in loader:
            times.append(clock())
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
            if len(times) >= batches:
                break
    torch.stack(losses).mean().item()
    return times[-1] - times[0]


def trained(layers: int, dataset: Any, batches: int) -> float:
    with pytorch.init() as context:
        trial = Trial(context, layers, dataset)
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Batch(batches), reporting_period=pytorch.Batch(25), checkpoint_policy="none"
        )
    return trial.times[-1] - trial.times[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--milliseconds", type=float, default=5.0, help="of a bare step; the model is made to fit")
    given = parser.parse_args()
    torch.set_num_threads(1)
    dataset = data(given.batches, WIDTH)
    layers = 2
    while bare(layers, dataset, 30) / 29 * 1e3 < given.milliseconds:
        layers += 1
    ratios, steps = [], []
    with tempfile.TemporaryDirectory() as home:
        os.environ["DETHPC_HOME"] = str(Path(home))
        os.chdir(home)
        for pair in range(given.pairs):
            both = [("bare", bare), ("trained", trained)]
            found = {name: run(layers, dataset, given.batches) for name, run in (both if pair % 2 else both[::-1])}
            ratios.append(found["trained"] / found["bare"] - 1)
            steps.append(found["bare"] / (given.batches - 1) * 1e3)
        tiny = data(1000, 8)
        work = [trained(0, tiny, 1000) - bare(0, tiny, 1000) for _ in range(5)]
        os.chdir("/")
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"steps of {statistics.median(steps):.2f} ms, {layers} layers, {given.pairs} pairs")
    print(f"the Trainer adds {middle:+.2%} (quartiles {low:+.2%}, {high:+.2%}); the budget is 2 %")
    print(f"its own work, seen with a model of almost no cost: {statistics.median(work) / 999 * 1e6:.0f} us a batch")


if __name__ == "__main__":
    main()
