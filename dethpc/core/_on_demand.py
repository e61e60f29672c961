"""Names of a package that load the module which defines them when they are first used (PEP 562)."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

_LOADING = threading.RLock()
"""Held while a module is loaded, and by who forks: a child would wait in vain for what another thread was about to load."""

os.register_at_fork(before=_LOADING.acquire, after_in_parent=_LOADING.release, after_in_child=_LOADING.release)


def on_demand(
    package: str, modules: Mapping[str, Sequence[str]]
) -> Tuple[Callable[[str], Any], Callable[[], List[str]]]:
    """The ``__getattr__`` and the ``__dir__`` of ``package``, by the names that each of its ``modules`` defines.

    A module is imported once, whatever threads ask for it, and a name that was asked for is an attribute from then on. The modules
    themselves are attributes, too, as if the package had imported them.
    """
    home: Dict[str, str] = {name: module for module, names in modules.items() for name in names}

    def load(module: str) -> Any:
        with _LOADING:
            return importlib.import_module(f"{package}.{module}")

    def get(name: str) -> Any:
        if name in modules:
            return load(name)
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(load(home[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> List[str]:
        return sorted({*vars(sys.modules[package]), *home, *modules})

    return get, names
