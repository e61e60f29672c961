"""determined.pytorch has the names and signatures of Determined 0.38.1 (``published.json``)."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from determined import pytorch
from determined.pytorch import experimental

assert experimental.__name__ == "dethpc.pytorch.experimental"  # imported by itself, as in Determined
PUBLISHED = json.loads((Path(__file__).parent / "published.json").read_text())
DIFFERENT = {"_PyTorchReducerContext.__init__": "the default is a function without a name"}
NOT_THERE = {"PyTorchTrial.trial_controller_class": "the trainer alone knows how to run a trial"}


def parameters(function: Any, method: bool) -> list[tuple[str, Any, Any]]:
    """(name, kind, default) of each; without ``self``."""
    found = list(inspect.signature(function).parameters.values())[int(method) :]
    return [(p.name, p.kind, p.default) for p in found]


def described(function: Any, method: bool) -> str:
    out, star = [], False
    for name, kind, default in parameters(function, method):
        if kind is inspect.Parameter.VAR_POSITIONAL:
            name, star = f"*{name}", True
        elif kind is inspect.Parameter.VAR_KEYWORD:
            name = f"**{name}"
        elif kind is inspect.Parameter.KEYWORD_ONLY and not star:
            out.append("*")
            star = True
        out.append(name if default is inspect.Parameter.empty else f"{name}={_default(default)}")
    return ", ".join(out)


def _default(value: Any) -> str:
    if isinstance(value, pytorch.Batch):
        return f"pytorch.Batch({value.value})"
    return "2.0 ** 24" if value == 2.0**24 else repr(value)


@pytest.mark.parametrize("name", sorted(set(PUBLISHED) - set(NOT_THERE)))
def test_a_published_name_is_there_with_its_signature(name: str) -> None:
    found, parents = pytorch, []
    for part in name.split("."):
        parents.append(found)
        assert hasattr(found, part), f"{name} is missing"
        found = getattr(found, part)
    owner = parents[-1]
    if PUBLISHED[name] in ("class", "attribute") or name in DIFFERENT:
        return
    static = isinstance(owner, type) and isinstance(inspect.getattr_static(owner, name.split(".")[-1]), staticmethod)
    assert described(found, isinstance(owner, type) and not static) == PUBLISHED[name]
