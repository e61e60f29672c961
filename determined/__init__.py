"""The name ``determined`` for ``dethpc``: ``determined.X`` is the very module ``dethpc.X``, one object under both names."""

import importlib
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Any, Optional

import dethpc


class _Loader:  # of no class of importlib.abc, whose import takes longer than all else here
    def __init__(self, real: Any) -> None:
        self.real = real

    def create_module(self, spec: ModuleSpec) -> Any:
        module = importlib.import_module(self.real.name)
        self.own = module.__spec__
        return module

    def exec_module(self, module: Any) -> None:
        module.__spec__ = self.own  # the import system has just put the alias's in its place
        if not hasattr(module, "__getattr__"):
            module.__getattr__ = lambda name: _stand_in(module, name)

    def get_code(self, name: str) -> Any:  # for runpy: python -m determined.X
        return self.real.loader.get_code(self.real.name)

    def get_source(self, name: str) -> Any:  # for tracebacks
        return self.real.loader.get_source(self.real.name)


def _stand_in(module: Any, name: str) -> Any:
    from dethpc.published import stand_in

    return stand_in(module.__name__, name)


class _Finder:
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        top, dot, rest = name.partition(".")
        if top != "determined" or not dot:
            return None
        if (real := find_spec(f"dethpc.{rest}")) is None:
            from dethpc.published import no_module

            return no_module(name)  # raises for those that only Determined has
        spec = ModuleSpec(name, _Loader(real), origin=real.origin)  # type: ignore[arg-type]
        spec.submodule_search_locations = real.submodule_search_locations
        return spec


sys.meta_path.insert(0, _Finder())
sys.modules["determined"] = dethpc
