"""Learning-rate schedulers that the trainer steps and saves."""

from __future__ import annotations

import enum
from typing import Any, Dict, List

import torch


class LRScheduler:
    """A scheduler of PyTorch's and when to step it; ``context.wrap_lr_scheduler()`` makes it."""

    class StepMode(enum.Enum):
        """Who steps the scheduler, and when; each only every ``frequency``-th time.

        ``STEP_EVERY_EPOCH``: the trainer, after an epoch. ``STEP_EVERY_BATCH``: the trainer, once for every batch, also of
        those whose gradients are aggregated. ``STEP_EVERY_OPTIMIZER_STEP``: the trainer, when the optimizer has stepped.
        ``MANUAL_STEP``: the training code itself.
        """

        STEP_EVERY_EPOCH = 1
        STEP_EVERY_BATCH = 2
        MANUAL_STEP = 3
        STEP_EVERY_OPTIMIZER_STEP = 4

    def __init__(
        self,
        scheduler: torch.optim.lr_scheduler._LRScheduler,
        step_mode: StepMode,
        frequency: int = 1,
    ) -> None:
        if not isinstance(step_mode, LRScheduler.StepMode):
            raise TypeError(f"step_mode is an LRScheduler.StepMode, not a {type(step_mode).__name__}")
        self._scheduler = scheduler
        self._step_mode = step_mode
        self._frequency = frequency

    def step(self, *args: Any, **kwargs: Any) -> None:
        self._scheduler.step(*args, **kwargs)

    def get_last_lr(self) -> List[Any]:
        rates: List[Any] = self._scheduler.get_last_lr()
        return rates

    def state_dict(self) -> Dict[Any, Any]:
        state: Dict[Any, Any] = self._scheduler.state_dict()
        return state

    def load_state_dict(self, state_dict: Dict[Any, Any]) -> None:
        self._scheduler.load_state_dict(state_dict)

    def _after_batch(self, batch_idx: int, aggregation: int, epoch_len: int) -> None:
        """Step after the batches up to ``batch_idx`` have led to a step of the optimizer."""
        mode, every = self._step_mode, self._frequency
        times = 0
        if mode is LRScheduler.StepMode.STEP_EVERY_BATCH:
            times = _multiples(batch_idx + 1 - aggregation, batch_idx + 1, every)
        elif mode is LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP:
            steps = (batch_idx + 1) // aggregation
            times = _multiples(steps - 1, steps, every)
        elif mode is LRScheduler.StepMode.STEP_EVERY_EPOCH:
            # An epoch is over for the scheduler when the optimizer's next step belongs to a later one.
            times = _multiples(batch_idx // epoch_len, (batch_idx + aggregation) // epoch_len, every)
        for _ in range(times):
            self.step()


def _multiples(after: int, upto: int, of: int) -> int:
    """How many multiples of ``of`` there are above ``after``, up to ``upto``."""
    return upto // of - after // of
