"""Search methods: which hyperparameters to try, and when to stop a trial. Pure; one file per method.

``base.Searcher`` is the contract, ``methods.build`` makes the searcher that a config names.

Published code knows this package as ``determined.searcher`` and finds there what a search method of the user's own is written
with. That talks to the master and is in the client's room; all that the package itself has is these names, on first use.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    from dethpc.client import custom_search

    try:
        return getattr(custom_search, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
