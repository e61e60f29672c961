"""Asynchronous saving of engines: their files' contents are copied, and a thread writes them while the training continues."""

from __future__ import annotations

import contextlib
import functools
import pathlib
from typing import Any, Callable, Dict, Iterator, List, Sequence

from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import TorchCheckpointEngine

from dethpc.pytorch._snapshot import Snapshot
from dethpc.pytorch._training.loop import logger


class Saving:
    """The memory of the last copies is kept for the next ones."""

    def __init__(self) -> None:
        self._snapshots: List[Snapshot] = []
        self._left: List[Callable[[], object]] = []

    @contextlib.contextmanager
    def copied(self, engines: Sequence[Any]) -> Iterator[None]:
        """What each engine's writer is to write in the block is left to ``write``, if the writer is DeepSpeed's usual one
        (``TorchCheckpointEngine``): others have ways of their own to let the training go on. What cannot be copied, or has no
        room, is written at once. To be called when nobody writes the last copies any more."""
        self._left = []
        writers = [engine.checkpoint_engine for engine in engines]
        try:
            for engine, writer in zip(engines, writers):
                if type(writer) is TorchCheckpointEngine:
                    engine.checkpoint_engine = _Copies(writer, self._copy)
            yield
        finally:
            for engine, writer in zip(engines, writers):
                engine.checkpoint_engine = writer

    def write(self, path: pathlib.Path) -> None:
        """Into the files that the engines have named."""
        for one in self._left:
            one()

    def _copy(self, writer: TorchCheckpointEngine, state: Dict[str, Any], path: str) -> None:
        """Now: an engine may give its memory to another part of its state as soon as it has saved one."""
        if len(self._snapshots) == len(self._left):
            self._snapshots.append(Snapshot())
        snapshot = self._snapshots[len(self._left)]
        try:
            copy = snapshot.take(state) if snapshot.has_room(state) else None
        except Exception as error:  # whatever a scheduler's or an optimizer's state holds
            logger.debug("the training waits while %s is written, which cannot be copied: %s", path, error)
            copy = None
        if copy is None:
            writer.save(state, path)
        else:
            self._left.append(functools.partial(writer.save, copy, path))


class _Copies(TorchCheckpointEngine):
    def __init__(self, writer: TorchCheckpointEngine, copy: Callable[..., None]) -> None:
        self.__dict__.update(vars(writer))
        self._writer, self._copy = writer, copy

    def save(self, state_dict: Dict[str, Any], path: str) -> None:
        self._copy(self._writer, state_dict, path)
