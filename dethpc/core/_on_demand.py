"""Names of a package that load the module which defines them when they are first used (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple


def on_demand(
    package: str, modules: Mapping[str, Sequence[str]]
) -> Tuple[Callable[[str], Any], Callable[[], List[str]]]:
    """The ``__getattr__`` and the ``__dir__`` of ``package``, by the names that each of its ``modules`` defines.

    A module is imported once, whatever threads ask for it, and a name that was asked for is an attribute from then on. The modules
    themselves are attributes, too, as if the package had imported them.
    """
    home: Dict[str, str] = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name in modules:
            return importlib.import_module(f"{package}.{name}")
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(f"{package}.{home[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    def names() -> List[str]:
        return sorted({*vars(sys.modules[package]), *home, *modules})

    return get, names
