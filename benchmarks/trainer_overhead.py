"""What the Trainer adds to a bare PyTorch loop of the same model with steps of 5 ms, beside Lightning and the Hugging Face Trainer.

All loops train in this process on the same data, with the same DataLoader and collate function, one compute thread, plain SGD,
and a report every 25 batches: the Trainer into the journal of an attempt, as on the cluster; Lightning by its CSV logger; the
Hugging Face Trainer into its history; the bare loop takes the mean loss. A window is 25 batches, an eighth of a second. Each
loop has a bare loop as its neighbour, and the two take turns (ABBA, in a random order), so that what else the machine does
meets both; told is the median over the pairs. All loops are made anew after ten pairs: where its weights lie in memory makes
one faster or slower than its twin by a per cent, for as long as it lives. Another bare loop beside the bare loop shows what the
measurement adds by itself. Processor time is that of the training thread.

The Trainer's own work for each batch is seen with a model of almost no cost.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from benchmarks.frame import Figure, Row, Spent, alternate, median, run
from benchmarks.reporting import attempt
from dethpc import pytorch

WIDTH, BATCH, BATCHES = 512, 64, 25  # of a layer, a batch's items, a window's and a report's batches
LIMIT = 1.0  # %
CYCLE = 10  # pairs of one loop before the next one has its turn


class Problem(NamedTuple):
    layers: int
    width: int
    data: torch.utils.data.TensorDataset

    def network(self) -> nn.Module:
        hidden = [part for _ in range(self.layers) for part in (nn.Linear(self.width, self.width), nn.ReLU())]
        return nn.Sequential(*hidden, nn.Linear(self.width, 2))

    def loader(self) -> Any:
        return torch.utils.data.DataLoader(self.data, batch_size=BATCH, shuffle=True)


def made(layers: int, width: int) -> Problem:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400 * BATCH, width, generator=generator)
    return Problem(layers, width, torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long()))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)


# --- loops that train a window when they are told to ----------------------------------------------------------------------


class _Over(BaseException):
    """Ends a loop in the middle of its training."""


class Loop:
    """Trains in a thread of its own, and waits after each window for its next turn."""

    def __init__(self, train: Callable[[Loop], None]) -> None:
        self._train, self._over = train, False
        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        self._batches, self._began, self._spent = -1, (0.0, 0.0), Spent(0, 0)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def batch(self) -> None:
        """Called at the beginning of each step."""
        self._batches += 1
        if self._batches % BATCHES == 0:
            self._spent = Spent(time.perf_counter() - self._began[0], time.thread_time() - self._began[1])
            self._rest()
            self._began = time.perf_counter(), time.thread_time()

    def window(self) -> Spent:
        """Let it train one window. The first one begins its training, and is none."""
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._mine.release()
        self._theirs.acquire()
        if self.error is not None:
            raise self.error
        return self._spent

    def end(self) -> None:
        self._over = True
        self._mine.release()
        self._thread.join()

    def _rest(self) -> None:
        self._theirs.release()
        self._mine.acquire()
        if self._over:
            raise _Over

    def _run(self) -> None:
        torch.set_num_threads(1)  # OpenMP counts for each thread that asks
        try:
            self._train(self)
            self.error = RuntimeError("the training ended by itself")
        except _Over:
            return
        except BaseException as error:
            self.error = error
        self._theirs.release()


def bare(problem: Problem) -> Callable[[Loop], None]:
    def train(loop: Loop) -> None:
        model = problem.network()
        optimizer, losses = sgd(model), []
        while True:
            for x, y in problem.loader():
                loop.batch()
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.detach())
                if len(losses) == BATCHES:
                    torch.stack(losses).mean().item()
                    losses.clear()

    return train


class Trial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext, problem: Problem, loop: Loop) -> None:
        self.context, self.problem, self.loop = context, problem, loop
        self.model = context.wrap_model(problem.network())
        self.optimizer = context.wrap_optimizer(sgd(self.model))

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(self.problem.data, batch_size=BATCH, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(torch.utils.data.Subset(self.problem.data, range(BATCH)), batch_size=BATCH)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.loop.batch()
        x, y = batch
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"loss": nn.functional.cross_entropy(self.model(batch[0]), batch[1])}


def ours(problem: Problem) -> Callable[[Loop], None]:
    def train(loop: Loop) -> None:
        with pytorch.init(hparams={}, exp_conf={}) as context:
            pytorch.Trainer(Trial(context, problem, loop), context).fit(
                max_length=pytorch.Batch(10**9), reporting_period=pytorch.Batch(BATCHES), checkpoint_policy="none"
            )

    return train


def lightning(problem: Problem) -> Callable[[Loop], None]:
    import lightning as pl
    from lightning.pytorch.loggers import CSVLogger

    def train(loop: Loop) -> None:
        class Module(pl.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.model = problem.network()

            def training_step(self, batch: Any, batch_idx: int) -> Any:
                loop.batch()
                loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
                self.log("loss", loss)
                return loss

            def configure_optimizers(self) -> Any:
                return sgd(self)

        trainer = pl.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=-1,
            logger=CSVLogger("."),
            log_every_n_steps=BATCHES,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )
        trainer.fit(Module(), problem.loader())

    return train


def transformers(problem: Problem) -> Callable[[Loop], None]:
    import transformers as hf

    def train(loop: Loop) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = problem.network()

            def forward(self, x: Any, y: Any) -> dict[str, Any]:
                return {"loss": nn.functional.cross_entropy(self.model(x), y)}

        class Trainer(hf.Trainer):
            def get_train_dataloader(self) -> Any:
                return problem.loader()

            def training_step(self, model: Any, inputs: Any, *rest: Any) -> Any:
                loop.batch()
                return super().training_step(model, {"x": inputs[0], "y": inputs[1]}, *rest)

        model = Model()
        arguments = hf.TrainingArguments(
            output_dir=".",
            use_cpu=True,
            max_steps=10**9,
            logging_steps=BATCHES,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            max_grad_norm=0,  # nobody else clips
            lr_scheduler_type="constant",
        )
        trainer = Trainer(model, arguments, train_dataset=problem.data, optimizers=(sgd(model), None))
        trainer.remove_callback(hf.PrinterCallback)
        trainer.train()

    return train


LOOPS: dict[str, Callable[[Problem], Callable[[Loop], None]]] = {
    "the Trainer": ours,
    "bare again": bare,
    "Lightning": lightning,
    "Hugging Face": transformers,
}


# --- pairs ------------------------------------------------------------------------------------------------------------------

Pairs = dict[str, list[tuple[Spent, Spent]]]
"""Of each loop: its windows, and those of its neighbour."""


def paired(problem: Problem, pairs: dict[str, int]) -> Pairs:
    """So many pairs of each loop, a few of the one after a few of the other, with all loops made anew for each few."""
    found: Pairs = {name: [] for name in pairs}
    while left := [name for name, wanted in pairs.items() if len(found[name]) < wanted]:
        for name, few in _few(problem, left).items():
            found[name] += few
    return found


def _few(problem: Problem, names: Sequence[str]) -> Pairs:
    loops = {name: Loop(LOOPS[name](problem)) for name in names}
    neighbour = Loop(bare(problem))
    found: Pairs = {}
    try:
        for loop in [neighbour, *loops.values()]:
            for _ in range(3):  # what comes first warms up
                loop.window()
        for name, loop in loops.items():
            both = alternate({"it": loop.window, "bare": neighbour.window}, CYCLE, warm=0)
            found[name] = list(zip(both["it"], both["bare"]))
    finally:
        for loop in [neighbour, *loops.values()]:
            loop.end()
    return found


def added(pairs: Sequence[tuple[Spent, Spent]], clock: str) -> Figure:
    """Per cent."""
    return median([100 * (getattr(it, clock) / getattr(other, clock) - 1) for it, other in pairs])


def microseconds(pairs: Sequence[tuple[Spent, Spent]]) -> Figure:
    """Of processor time for each batch."""
    return median([(it.cpu - other.cpu) / BATCHES * 1e6 for it, other in pairs])


def fitting(milliseconds: float) -> Problem:
    """With as many layers as make a bare step take so long."""
    found = made(2, WIDTH)
    while True:
        loop = Loop(bare(found))
        spent = min([loop.window().cpu for _ in range(5)][2:]) / BATCHES * 1e3
        loop.end()
        if spent >= milliseconds:
            return found
        found = found._replace(layers=found.layers + 1)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pairs", type=int, help="of the Trainer (default: 900; quick: 30); the others have a third of them"
    )
    parser.add_argument("--milliseconds", type=float, default=5.0, help="of a bare step; the model is made to fit")


def rows(options: argparse.Namespace) -> Iterator[Row]:
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    count = options.pairs or (30 if options.quick else 900)
    with tempfile.TemporaryDirectory() as home:
        attempt(Path(home), None)
        os.chdir(home)
        try:
            yield from measured(fitting(options.milliseconds), count)
        finally:
            os.chdir("/")


def measured(problem: Problem, count: int) -> Iterator[Row]:
    peers = [name for name in LOOPS if name != "the Trainer"]
    counts = {"the Trainer": count, **dict.fromkeys(peers, count // 3)}
    found = paired(problem, counts)
    step = statistics.median(other.clock for _, other in found["the Trainer"]) / BATCHES * 1e3
    note = f"{count} pairs; steps of {step:.2f} ms, {problem.layers} layers"
    for words, clock in (("processor time", "cpu"), ("the clock", "clock")):
        beside = {name: added(found[name], clock) for name in peers}
        yield Row(f"the Trainer adds, by {words}", "%", added(found["the Trainer"], clock), beside, LIMIT, note=note)
    tiny = paired(made(0, 8), {"the Trainer": max(30, count // 3), **dict.fromkeys(peers, CYCLE)})
    beside = {name: microseconds(tiny[name]) for name in peers}
    mine = microseconds(tiny["the Trainer"])
    yield Row("the Trainer's own work for each batch", "us", mine, beside, LIMIT * 50, note="1 % of 5 ms is 50 us")


if __name__ == "__main__":
    run(__doc__, rows, arguments)
