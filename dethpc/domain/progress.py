"""How far an experiment is, where anybody can say."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from dethpc.domain.trial_config import SearcherConfig

_OPEN = ("single", "random", "grid")
"""Methods whose trials may train for as long as their code does; of the others the configuration has lengths or rounds."""


def progress(experiment: Mapping[str, Any], config: Optional[Mapping[str, Any]] = None) -> Optional[float]:
    """From 0 to 1, of an experiment as the wire has it; None where its trials have no length, and none of them has reported
    progress or ended. ``config``: its configuration, where the experiment has none with it."""
    done = float(experiment.get("progress") or 0.0)
    searcher = SearcherConfig.of(config if config is not None else experiment.get("config") or {})
    open_ended = searcher.name in _OPEN and searcher.full_length is None
    return None if open_ended and not done else done
