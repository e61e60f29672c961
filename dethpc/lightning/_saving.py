"""Intercepts the file that a Trainer would write, so that the training waits only for a copy in memory."""

from __future__ import annotations

import logging
import pathlib
from typing import Any, Callable, List, Optional, Tuple

from lightning.pytorch import Trainer
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.strategies import Strategy

from dethpc.pytorch import Snapshot

logger = logging.getLogger("dethpc.lightning")

Write = Callable[[pathlib.Path], object]


class Saving:
    """The memory of the last copy is kept for the next one."""

    def __init__(self) -> None:
        self._snapshot = Snapshot()

    def caught(self, trainer: Trainer) -> Optional[Tuple[Write, bool]]:
        """What writes the trainer's checkpoint of now to a file, and whether it may do so later, in another thread: it has a copy.

        None where the trainer's strategy or plugin writes in a way of its own. All workers call it, when nobody writes the last
        copy any more.
        """
        strategy = trainer.strategy
        plugin = strategy.checkpoint_io
        if type(strategy).save_checkpoint is not Strategy.save_checkpoint or type(plugin) is not TorchCheckpointIO:
            return None
        caught = _Caught()
        strategy.checkpoint_io = caught
        try:
            trainer.save_checkpoint("")
        finally:
            strategy.checkpoint_io = plugin
        if not caught.states:
            return lambda path: None, True  # another worker has it
        state, options = caught.states[0]
        copy = self._copy(state)
        whole = state if copy is None else copy
        return lambda path: plugin.save_checkpoint(whole, path, storage_options=options), copy is not None

    def _copy(self, state: Any) -> Any:
        """None where there is too little memory, or something in it that cannot be copied."""
        if not self._snapshot.has_room(state):
            return None
        try:
            return self._snapshot.take(state)
        except Exception as error:  # whatever a callback's state holds
            logger.debug("the training waits while a checkpoint is written, which cannot be copied: %s", error)
            return None


class _Caught(TorchCheckpointIO):
    def __init__(self) -> None:
        super().__init__()
        self.states: List[Tuple[Any, Any]] = []

    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Optional[Any] = None) -> None:
        self.states.append((checkpoint, storage_options))
