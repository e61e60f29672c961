"""Configurations: YAML text to validated models, with errors that name file, line and field. Pure.

``loading.load`` reads an experiment's, ``site.load_site`` a site's; ``hyperparameters`` is the space that searchers draw from.
Each name is imported when it is first used: who only reads YAML (``source``) waits for no models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dethpc.config.experiment import ExperimentConfig
    from dethpc.config.loading import Loaded, load, load_storage, merged, with_overrides
    from dethpc.config.source import dump

__all__ = ["ExperimentConfig", "Loaded", "dump", "load", "load_storage", "merged", "with_overrides"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dethpc.config import loading

    return getattr(loading, name)
