"""What the Trainer adds to a bare PyTorch loop of the same model: less than 2 % of steps of some 5 ms.

    python benchmarks/trainer_overhead.py [--windows 200] [--batches 25] [--reporting 25]

Both train in this process on the same data, in turns: after each ``--batches`` batches the Trainer's ``train_batch`` lets the bare
loop train as many. So neighbouring windows of an eighth of a second are compared, and what else the machine does meets both; the
median of the ratios is told, with its 95 % confidence interval. Measured are the processor time of the training thread and the
clock. The loops differ in what the Trainer is for: reports into the journal of an attempt, as on the cluster, looks whether to
stop, resumable data. A window has a report when ``--reporting`` is not larger than ``--batches``.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from reporting import attempt

from determined import pytorch

WIDTH, BATCH = 512, 64
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Clocks = tuple[float, float]  # processor time of this thread, and the clock; seconds


def clocks() -> Clocks:
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.thread_time(), time.perf_counter()


def since(begin: Clocks) -> Clocks:
    now = clocks()
    return now[0] - begin[0], now[1] - begin[1]


def data(batches: int, width: int) -> torch.utils.data.TensorDataset:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batches * BATCH, width, generator=generator)
    return torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())


def network(layers: int, dataset: Any) -> nn.Module:
    width = dataset.tensors[0].shape[1]
    hidden = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(width, 2))


def bare(layers: int, dataset: Any, batches: int) -> Iterator[Clocks]:
    """Trains so many batches each time it is asked; what they took."""
    model = network(layers, dataset).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH, shuffle=True)
    begin, count, losses = clocks(), 0, []
    while True:
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.to(DEVICE)), y.to(DEVICE))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
            count += 1
            if count % batches == 0:
                torch.stack(losses).mean().item()
                losses.clear()
                yield since(begin)
                begin = clocks()


class Trial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext, layers: int, dataset: Any, batches: int) -> None:
        self.context, self.dataset, self.batches = context, dataset, batches
        self.model = context.wrap_model(network(layers, dataset))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01))
        self.other = bare(layers, dataset, batches)
        self.begin = (0.0, 0.0)
        self.windows: list[tuple[Clocks, Clocks]] = []  # the Trainer's and the bare loop's

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(self.dataset, batch_size=BATCH, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(torch.utils.data.Subset(self.dataset, range(BATCH)), batch_size=BATCH)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if batch_idx % self.batches == 0:
            mine, others = since(self.begin), next(self.other)
            if batch_idx >= 3 * self.batches:  # what comes first warms up
                self.windows.append((mine, others))
            self.begin = clocks()
        x, y = batch
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"loss": nn.functional.cross_entropy(self.model(batch[0]), batch[1])}


def trained(layers: int, dataset: Any, batches: int, windows: int, reporting: int) -> list[tuple[Clocks, Clocks]]:
    with tempfile.TemporaryDirectory() as home:
        attempt(Path(home), None)
        os.chdir(home)
        with pytorch.init(hparams={}, exp_conf={}) as context:
            trial = Trial(context, layers, dataset, batches)
            pytorch.Trainer(trial, context).fit(
                max_length=pytorch.Batch((windows + 3) * batches + 1),
                reporting_period=pytorch.Batch(reporting),
                checkpoint_policy="none",
            )
        os.chdir("/")
    return trial.windows


def interval(values: list[float]) -> tuple[float, float, float]:
    """The median, and where it lies with 95 % confidence, by the binomial distribution of the ranks."""
    values, n = sorted(values), len(values)
    reach = 0.98 * n**0.5
    return statistics.median(values), values[max(0, int(n / 2 - reach))], values[min(n - 1, int(n / 2 + reach))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=200)
    parser.add_argument("--batches", type=int, default=25, help="in a window")
    parser.add_argument("--reporting", type=int, default=25, help="batches between two reports")
    parser.add_argument("--milliseconds", type=float, default=5.0, help="of a bare step; the model is made to fit")
    given = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    dataset = data(400, WIDTH)
    layers = 2
    while step(layers, dataset) * 1e3 < given.milliseconds:
        layers += 1
    windows = trained(layers, dataset, given.batches, given.windows, given.reporting)
    milliseconds = statistics.median(theirs[1] for _, theirs in windows) / given.batches * 1e3
    print(f"steps of {milliseconds:.2f} ms, {layers} layers, {len(windows)} pairs of {given.batches} batches")
    for name, clock in (("processor time", 0), ("clock", 1)):
        middle, low, high = interval([mine[clock] / theirs[clock] - 1 for mine, theirs in windows])
        print(f"the Trainer adds {middle:+.2%} of {name} ({low:+.2%} to {high:+.2%}); the budget is 2 %")
    tiny = trained(0, data(400, 8), given.batches, 100, given.reporting)
    own = interval([(mine[0] - theirs[0]) / given.batches * 1e6 for mine, theirs in tiny])
    print(f"its own work, seen with a model of almost no cost: {own[0]:.0f} us a batch ({own[1]:.0f} to {own[2]:.0f})")


def step(layers: int, dataset: Any) -> float:
    """Seconds of processor time on CPUs, else of the clock."""
    loop = bare(layers, dataset, 10)
    next(loop)
    return min(next(loop)[1 if DEVICE == "cuda" else 0] for _ in range(5)) / 10


if __name__ == "__main__":
    main()
