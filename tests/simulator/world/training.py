"""Simulated training: a chain of hashes over steps and hyperparameters. A step that is lost, doubled or resumed wrongly shows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any


def begin(hparams: Mapping[str, Any]) -> str:
    return _hash(json.dumps(hparams, sort_keys=True))


def step(chain: str, number: int) -> str:
    return _hash(f"{chain}:{number}")


def loss(chain: str, number: int) -> float:
    return int(chain, 16) / 16**12 + 1.0 / number


def expected(hparams: Mapping[str, Any], steps: int) -> str:
    """The chain after so many steps."""
    return _after(json.dumps(hparams, sort_keys=True), steps)


@lru_cache(maxsize=100_000)
def _after(hparams: str, steps: int) -> str:
    return _hash(hparams) if steps == 0 else step(_after(hparams, steps - 1), steps)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
