"""The ``resources``, ``slurm`` and ``pbs`` sections: what a trial runs on."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Optional, Union

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from dethpc.config.sections.section import STORED, Section, Whole, mistaken, wrong
from dethpc.config.wording import show
from dethpc.domain.slurm.gres import is_type

_SIZE = re.compile(r"([0-9]*[.])?[0-9]+ ?([kmgtp](i?b)?|b)?", re.IGNORECASE)
_DEVICE = re.compile(r"(/[^:]*):(/[^:]*)(?::([rwm]*))?")


def memory(value: Any) -> Any:
    fine = _SIZE.fullmatch(value) if isinstance(value, str) else isinstance(value, int) and not isinstance(value, bool)
    if not fine or (isinstance(value, int) and value < 0):
        raise wrong("bytes as a whole number, or a size such as 4GiB")
    return value


def device(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    parts = _DEVICE.fullmatch(value)
    if parts is None:
        raise wrong("/path/on/host:/path/in/container[:rwm], or a mapping", value=show(value))
    return {"host_path": parts[1], "container_path": parts[2], "mode": parts[3] or "mrw"}


def _gpu_type(value: Any) -> Any:
    """YAML reads 3090 as a number; Slurm knows types of any characters."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(text, str) and not is_type(text):
        raise wrong("a GPU type as in Slurm's GRES, such as a100 or 3090", value=show(value))
    return text


GpuType = Annotated[str, BeforeValidator(_gpu_type)]
"""As in GRES: ``a100``, ``3090``, ``1g.5gb``."""


class Device(Section):
    host_path: str
    container_path: str
    mode: str = "mrw"


class Resources(Section):
    omitted: ClassVar[frozenset[str]] = frozenset({"agent_label", "slots"})

    slots_per_trial: Annotated[Whole, Field(ge=0)] = 1
    max_slots: Optional[Annotated[Whole, Field(ge=0)]] = None
    weight: Annotated[float, Field(gt=0)] = 1.0
    priority: Optional[Annotated[Whole, Field(ge=1, le=99)]] = None
    resource_pool: str = ""
    is_single_node: Optional[bool] = None
    native_parallel: bool = False
    shm_size: Optional[Annotated[Union[int, str], BeforeValidator(memory)]] = None
    devices: list[Annotated[Device, BeforeValidator(device)]] = []
    slots: Optional[Whole] = None
    agent_label: Optional[str] = None

    @model_validator(mode="after")
    def _trial_fits(self, info: ValidationInfo) -> Resources:
        if info.context is STORED:  # max_slots may be set lower later: then no trial runs until it is raised
            return self
        if self.max_slots is not None and self.slots_per_trial > self.max_slots:
            raise mistaken(
                f"{self.max_slots} is below slots_per_trial ({self.slots_per_trial}), so no trial could ever start",
                field="max_slots",
            )
        return self


class Slurm(Section):
    omitted: ClassVar[frozenset[str]] = frozenset(
        {"slots_per_node", "gpu_type", "sbatch_args", "ntasks_per_node", "cpus_per_task"}
    )

    slots_per_node: Optional[Annotated[Whole, Field(ge=1)]] = None
    gpu_type: Optional[GpuType] = None
    ntasks_per_node: Optional[Annotated[Whole, Field(ge=1)]] = None  # of an srun in the entrypoint
    cpus_per_task: Optional[Annotated[Whole, Field(ge=1)]] = None
    sbatch_args: Optional[list[str]] = None


class PBS(Section):
    omitted: ClassVar[frozenset[str]] = frozenset({"slots_per_node", "pbsbatch_args"})

    slots_per_node: Optional[Annotated[Whole, Field(ge=1)]] = None
    pbsbatch_args: Optional[list[str]] = None
