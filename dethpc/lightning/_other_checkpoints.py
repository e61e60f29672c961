"""Files of a Trainer's other ModelCheckpoints: stored with each checkpoint, and restored in the next job."""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile
from typing import Any, Dict, Iterator, List, Tuple

from lightning.pytorch import Trainer

from dethpc.rundir.files import link_or_copy

_FOLDER = "kept"
_FILES = ("best_model_path", "kth_best_model_path", "last_model_path")


class StagedFiles:
    """The files that the ModelCheckpoints refer to now, by other names: they may delete their own while these are being stored."""

    def __init__(self, trainer: Trainer) -> None:
        self._folders: List[pathlib.Path] = []
        for number, callback in _others(trainer):
            directory = pathlib.Path(callback.dirpath)
            files = [path for path in _referred(callback.state_dict(), directory) if path.exists()]
            if not files:
                continue
            staging = pathlib.Path(tempfile.mkdtemp(prefix=".dethpc-saving-", dir=directory.parent))
            self._folders.append(staging)
            for path in files:
                _put(path, staging / _FOLDER / str(number) / path.relative_to(directory))

    def write(self, path: pathlib.Path) -> None:
        """Into the checkpoint ``path``."""
        for staging in self._folders:
            for folder in (staging / _FOLDER).iterdir():
                _put(folder, path / _FOLDER / folder.name)
            shutil.rmtree(staging, ignore_errors=True)


def bring_back(trainer: Trainer, checkpoint: Dict[str, Any], path: pathlib.Path, *, files: bool) -> None:
    """Put what the checkpoint ``path`` has kept where the ModelCheckpoints of this job write (``files``: this worker does), and
    have their states in ``checkpoint`` say so, before they are read."""
    for number, callback in _others(trainer):
        state, folder = checkpoint.get("callbacks", {}).get(callback.state_key), path / _FOLDER / str(number)
        if not state or not folder.is_dir():
            continue
        before, now = str(state.get("dirpath")), str(callback.dirpath)
        if files:
            for file in folder.iterdir():
                if not (pathlib.Path(now) / file.name).exists():
                    _put(file, pathlib.Path(now) / file.name)

        def moved(name: str, before: str = before, now: str = now) -> str:
            return now + name[len(before) :] if name.startswith(before + os.sep) else name

        state["dirpath"] = now
        for field in _FILES:
            state[field] = moved(state.get(field) or "")
        state["best_k_models"] = {moved(name): score for name, score in (state.get("best_k_models") or {}).items()}


def _others(trainer: Trainer) -> Iterator[Tuple[int, Any]]:
    """Each with its number among those of the Trainer that have a directory."""
    local = [one for one in trainer.checkpoint_callbacks if "://" not in str(getattr(one, "dirpath", None) or "://")]
    yield from enumerate(local)


def _referred(state: Dict[str, Any], directory: pathlib.Path) -> List[pathlib.Path]:
    named = [state.get(field) for field in _FILES] + list(state.get("best_k_models") or {})
    paths = {pathlib.Path(name) for name in named if name}
    return sorted(path for path in paths if directory in path.parents)


def _put(source: pathlib.Path, target: pathlib.Path) -> None:
    """A file or a directory, by links where the file system has them."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, copy_function=link_or_copy, dirs_exist_ok=True)
    else:
        link_or_copy(str(source), str(target))
