"""The ``environment`` and ``bind_mounts`` sections: what surrounds the user's processes."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Optional

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from dethpc.config.section import Section, Whole, absolute, wrong
from dethpc.config.wording import show

SLOT_TYPES = ("cpu", "cuda", "rocm")


def _cuda_for_gpu(data: Any) -> Any:
    """``gpu`` is the older name of ``cuda``."""
    if not isinstance(data, dict) or data.get("gpu") is None:
        return data
    if data.get("cuda") is not None:
        raise wrong("either cuda or its older name gpu", field="gpu", found="both")
    return {**{key: value for key, value in data.items() if key != "gpu"}, "cuda": data["gpu"]}


def _variable(text: str) -> str:
    name, equals, _ = text.partition("=")
    if not equals or not name or "\0" in text or name != name.strip():
        raise wrong("NAME=VALUE", found=show(name))  # what follows "=" may be a secret
    return text


Variable = Annotated[str, AfterValidator(_variable)]


class Images(Section):
    """An image for each slot type."""

    omitted: ClassVar[frozenset[str]] = frozenset({"gpu"})

    cpu: Optional[str] = None
    cuda: Optional[str] = None
    rocm: Optional[str] = None
    gpu: Optional[str] = None

    _gpu = model_validator(mode="before")(_cuda_for_gpu)


class Variables(Section):
    """``NAME=VALUE`` lists for each slot type; among equal names the last counts."""

    omitted: ClassVar[frozenset[str]] = frozenset({"gpu"})

    cpu: list[Variable] = []
    cuda: list[Variable] = []
    rocm: list[Variable] = []
    gpu: Optional[list[Variable]] = None

    _gpu = model_validator(mode="before")(_cuda_for_gpu)


def _images(value: Any) -> Any:
    if isinstance(value, str):
        return dict.fromkeys(SLOT_TYPES, value)
    if not isinstance(value, dict):
        raise wrong("an image name, or a mapping of cpu, cuda and rocm to one")
    return value


def _variables(value: Any) -> Any:
    if isinstance(value, list):
        for i, item in enumerate(value):
            if not isinstance(item, str):
                raise wrong("a list of NAME=VALUE", field=str(i), found=show(item))
            try:
                _variable(item)
            except ValueError:
                raise wrong("NAME=VALUE", field=str(i), found=show(item.partition("=")[0])) from None
        return dict.fromkeys(SLOT_TYPES, value)
    if not isinstance(value, dict):
        raise wrong("a list of NAME=VALUE, or a mapping of cpu, cuda and rocm to one")
    return value


class ProxyPort(Section):
    proxy_port: Annotated[Whole, Field(ge=1, le=65535)]
    proxy_tcp: bool = False
    unauthenticated: bool = False
    default_service_id: bool = False


class RegistryAuth(Section):
    omitted: ClassVar[frozenset[str]] = frozenset(
        {"username", "password", "auth", "email", "serveraddress", "identitytoken", "registrytoken"}
    )

    username: Optional[str] = None
    password: Optional[str] = None
    auth: Optional[str] = None
    email: Optional[str] = None
    serveraddress: Optional[str] = None
    identitytoken: Optional[str] = None
    registrytoken: Optional[str] = None


class Environment(Section):
    omitted: ClassVar[frozenset[str]] = frozenset({"venv"})

    image: Annotated[Images, BeforeValidator(_images)] = Images()
    environment_variables: Annotated[Variables, BeforeValidator(_variables)] = Variables()
    force_pull_image: bool = False
    registry_auth: Optional[RegistryAuth] = None
    ports: dict[str, Annotated[Whole, Field(ge=1, le=65535)]] = {}
    proxy_ports: list[ProxyPort] = []
    add_capabilities: list[str] = []
    drop_capabilities: list[str] = []
    pod_spec: Optional[dict[str, Any]] = None
    venv: Optional[Literal["per-experiment"]] = None

    def variables(self, slot_type: str) -> dict[str, str]:
        """The variables for processes on slots of this type (cpu, cuda or rocm)."""
        return dict(item.split("=", 1) for item in getattr(self.environment_variables, slot_type))


def _not_the_workdir(path: str) -> str:
    if path == ".":
        raise wrong("a path below the working directory, or an absolute one")
    return path


class BindMount(Section):
    host_path: Annotated[str, AfterValidator(absolute)]
    container_path: Annotated[str, Field(min_length=1), AfterValidator(_not_the_workdir)]
    read_only: bool = False
    propagation: str = "rprivate"
