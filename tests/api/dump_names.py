"""Prints, as JSON, public names of ``determined`` and their signatures. Runs in the published package's environment and in ours.

What a module imports and is not installed (torch, keras, ...) is made up on the spot: signatures need no framework.
"""

from __future__ import annotations

import enum
import importlib
import importlib.abc
import importlib.machinery
import inspect
import json
import sys
import types
import warnings
from typing import Any

MODULES = (
    "determined",
    "determined.common.api",
    "determined.common.api.authentication",
    "determined.common.api.errors",
    "determined.common.experimental",
    "determined.common.experimental.checkpoint",
    "determined.common.experimental.determined",
    "determined.common.experimental.experiment",
    "determined.common.experimental.metrics",
    "determined.common.experimental.trial",
    "determined.common.experimental.user",
    "determined.common.storage",
    "determined.common.util",
    "determined.core",
    "determined.errors",
    "determined.experimental",
    "determined.experimental.client",
    "determined.experimental.core_v2",
    "determined.keras",
    "determined.keras.callbacks",
    "determined.launch",
    "determined.launch.deepspeed",
    "determined.launch.horovod",
    "determined.launch.tensorflow",
    "determined.launch.torch_distributed",
    "determined.launch.wrap_rank",
    "determined.lightning",
    "determined.pytorch",
    "determined.pytorch.deepspeed",
    "determined.pytorch.experimental",
    "determined.pytorch.samplers",
    "determined.tensorboard",
    "determined.tensorboard.metric_writers",
    "determined.tensorboard.metric_writers.pytorch",
    "determined.tensorboard.metric_writers.tensorflow",
    "determined.tensorboard.util",
    "determined.transformers",
    "determined.util",
)
FRAMEWORKS = (
    "accelerate",
    "deepspeed",
    "horovod",
    "keras",
    "lightning",
    "numpy",
    "pytorch_lightning",
    "tensorflow",
    "torch",
)
FRAMEWORKS += ("h5py", "torchmetrics", "torchvision", "transformers", "tensorboard", "cloudpickle")
SLOW = ("keras", "lightning", "tensorflow", "transformers")  # made up even where they are installed


class _AnyClass(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _AnyClass(name, (), {})

    def __getitem__(cls, item: Any) -> Any:
        return cls

    def __or__(cls, other: Any) -> Any:
        return cls

    __ror__ = __or__


class _MadeUp(types.ModuleType):
    __path__: list[str] = []
    __version__ = "99.0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _AnyClass(
            name, (), {"__init__": lambda self, *args, **kwargs: None, "__call__": lambda self, *a, **k: a[0]}
        )


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, frameworks: tuple[str, ...]) -> None:
        self._frameworks = frameworks

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return importlib.machinery.ModuleSpec(name, self) if name.split(".")[0] in self._frameworks else None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _MadeUp(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def is_own(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).split(".")[0] in ("determined", "dethpc")


def parameters(function: Any) -> list[list[str]] | None:
    """Name, kind and default ("" for none, "..." for one that is no plain value) of each."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    plain = (str, int, float, bool, type(None))
    return [
        [
            one.name,
            one.kind.name,
            ""
            if one.default is one.empty
            else str(one.default)
            if isinstance(one.default, enum.Enum)
            else repr(one.default)
            if isinstance(one.default, plain)
            else "...",
        ]
        for one in found
    ]


def describe(thing: Any) -> dict[str, Any]:
    if not isinstance(thing, type):
        return {"kind": "function", "parameters": parameters(thing)}
    members: dict[str, Any] = {}
    if issubclass(thing, enum.Enum):
        return {"kind": "enum", "members": {m.name: str(getattr(m.value, "value", m.value)) for m in thing}}
    for name in dir(thing):
        if name.startswith("_") and name not in (
            "__init__",
            "__enter__",
            "__exit__",
            "__call__",
            "__iter__",
            "__len__",
        ):
            continue
        owner = next((one for one in thing.__mro__ if name in vars(one)), None)
        if owner is None or not is_own(owner):
            continue
        raw = vars(owner)[name]
        function = raw.__func__ if isinstance(raw, (staticmethod, classmethod)) else raw
        members[name] = "property" if isinstance(raw, property) or not callable(function) else parameters(function)
    return {"kind": "class", "members": members}


def dump(module: types.ModuleType) -> dict[str, Any]:
    names = {}
    for name in dir(module):
        if name.startswith("_"):
            continue
        thing = getattr(module, name)
        if callable(thing) and is_own(thing) and getattr(thing, "__name__", ""):
            names[name] = describe(thing)
    return names


def main() -> None:
    warnings.simplefilter("ignore")
    sys.meta_path.insert(0, _Finder(SLOW))
    sys.meta_path.append(_Finder(FRAMEWORKS))
    found: dict[str, Any] = {}
    for name in MODULES:
        try:
            found[name] = dump(importlib.import_module(name))
        except ImportError as error:
            found[name] = {"": str(error)}
    print(json.dumps(found))


main()
