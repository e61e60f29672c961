"""Container runtimes as pure wraps around the command of a job: ``runtime(name).wrap(...)``. ``base.Runtime`` is the contract."""

from __future__ import annotations

from collections.abc import Mapping

from dethpc.containers.apptainer import Apptainer
from dethpc.containers.base import OPTIONAL, Bind, Device, Env, Extras, Gpus, Runtime, Wrapped
from dethpc.containers.charliecloud import Charliecloud
from dethpc.containers.enroot import Enroot
from dethpc.containers.none import NoContainer
from dethpc.containers.podman import Podman
from dethpc.containers.pyxis import Pyxis

__all__ = ["OPTIONAL", "RUNTIMES", "Bind", "Device", "Env", "Extras", "Gpus", "Runtime", "Wrapped", "that_honour"]

RUNTIMES: Mapping[str, Runtime] = {
    runtime.name: runtime
    for runtime in (
        NoContainer(), Apptainer(), Apptainer("singularity"), Charliecloud(), Podman(), Enroot(), Pyxis(),
    )
}  # fmt: skip


def that_honour(what: str) -> list[str]:
    """Names of the runtimes that can do ``what``, a key of ``OPTIONAL``."""
    return [name for name, runtime in RUNTIMES.items() if what in runtime.honours]
