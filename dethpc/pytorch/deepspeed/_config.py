"""DeepSpeed's own configuration, with hyperparameters put into it."""

from __future__ import annotations

import copy
import json
import pathlib
from typing import Any, Dict, List, Tuple, Union

CONFIG, OVERWRITES = "deepspeed_config", "overwrite_deepspeed_args"
"""Hyperparameters, by convention: the configuration or its file, and what to put into it."""


def overwrite_deepspeed_config(
    base_ds_config: Union[str, Dict[str, Any]], source_ds_dict: Dict[str, Any]
) -> Dict[str, Any]:
    """A configuration of DeepSpeed's with the values of ``source_ds_dict`` in place of its own, at any depth.

    ``base_ds_config``: the configuration, which is not changed, or the path of its JSON file. Raises TypeError for anything
    else, ValueError when the file has a key twice.
    """
    return _merged(_read(base_ds_config, pathlib.Path()), source_ds_dict)


def get_ds_config_from_hparams(
    hparams: Dict[str, Any],
    model_dir: Union[pathlib.Path, str] = pathlib.Path("."),  # noqa: B008
    config_key: str = CONFIG,
    overwrite_key: str = OVERWRITES,
) -> Dict[str, Any]:
    """DeepSpeed's configuration from hyperparameters: ``config_key`` names the configuration, or its JSON file in ``model_dir``,
    ``overwrite_key`` what is put into it. Raises ValueError when there is no ``config_key``."""
    if config_key not in hparams:
        raise ValueError(
            f"there is no hyperparameter {config_key!r}; there are {', '.join(map(repr, hparams)) or 'none'}"
        )
    return _merged(_read(hparams[config_key], pathlib.Path(model_dir)), hparams.get(overwrite_key) or {})


def _read(config: Union[str, Dict[str, Any]], directory: pathlib.Path) -> Dict[str, Any]:
    if isinstance(config, str):
        content: Dict[str, Any] = json.loads((directory / config).read_text(), object_pairs_hook=_once)
        return content
    if not isinstance(config, dict):
        raise TypeError(f"a DeepSpeed configuration is a dict or the path of a file, not a {type(config).__name__}")
    return copy.deepcopy(config)


def _once(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"the DeepSpeed configuration has more than one {', '.join(twice)}")
    return members


def _merged(base: Dict[str, Any], over: Dict[str, Any]) -> Dict[str, Any]:
    for name, value in over.items():
        mine = base.get(name)
        base[name] = _merged(mine, value) if isinstance(mine, dict) and isinstance(value, dict) else value
    return base
