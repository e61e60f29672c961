"""The ``environment`` and ``bind_mounts`` sections: what surrounds the user's processes."""

from __future__ import annotations

import posixpath
import re
import shlex
from typing import Annotated, Any, ClassVar, Literal, Optional

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from dethpc.config.sections.section import STORED, Section, Whole, absolute, mistaken, wrong
from dethpc.config.wording import show
from dethpc.containers import RUNTIMES
from dethpc.domain.text import bash
from dethpc.domain.trial_config import WORKDIR

SLOT_TYPES = ("cpu", "cuda", "rocm")
PROPAGATIONS = ("rprivate", "private", "rshared", "shared", "rslave", "slave")


def _cuda_for_gpu(data: Any) -> Any:
    """``gpu`` is the older name of ``cuda``."""
    if not isinstance(data, dict) or data.get("gpu") is None:
        return data
    if data.get("cuda") is not None:
        raise mistaken("set cuda or its older name gpu, not both", field="gpu")
    return {**{key: value for key, value in data.items() if key != "gpu"}, "cuda": data["gpu"]}


def _variable(text: str) -> str:
    name, equals, _ = text.partition("=")
    if not equals or not name or "\0" in text or name != name.strip():
        raise wrong("NAME=VALUE", value=show(name))  # what follows "=" may be a secret
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


def images(value: Any) -> Any:
    if isinstance(value, str):
        return dict.fromkeys(SLOT_TYPES, value)
    if not isinstance(value, dict):
        raise wrong("an image name, or a mapping of cpu, cuda and rocm to one")
    return value


def _variables(value: Any) -> Any:
    if isinstance(value, list):
        for i, item in enumerate(value):
            if not isinstance(item, str):
                raise wrong("a list of NAME=VALUE", field=str(i), value=show(item))
            try:
                _variable(item)
            except ValueError:
                raise wrong("NAME=VALUE", field=str(i), value=show(item.partition("=")[0])) from None
        return dict.fromkeys(SLOT_TYPES, value)
    if not isinstance(value, dict):
        raise wrong("a list of NAME=VALUE, or a mapping of cpu, cuda and rocm to one")
    return value


class ProxyPort(Section):
    proxy_port: Annotated[Whole, Field(ge=1, le=65535)]
    proxy_tcp: bool = False
    unauthenticated: bool = False
    default_service_id: bool = False

    def service(self) -> dict[str, Any]:
        """As ``spec.json`` has it."""
        return {"port": self.proxy_port, "kind": "tcp", "protocol": "tcp" if self.proxy_tcp else "http"}


class RegistryAuth(Section):
    """Name and password, or one of the tokens that stand for both."""

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

    @model_validator(mode="before")
    @classmethod
    def _serveraddress_for_server(cls, data: Any) -> Any:
        """``server`` is its older name."""
        if not isinstance(data, dict) or data.get("server") is None:
            return data
        if data.get("serveraddress") is not None:
            raise mistaken("set serveraddress or its older name server, not both", field="server")
        return {**{key: value for key, value in data.items() if key != "server"}, "serveraddress": data["server"]}

    @model_validator(mode="after")
    def _enough(self, info: ValidationInfo) -> RegistryAuth:
        given = self.model_dump()
        if not given or self.auth or self.identitytoken or self.registrytoken or info.context is STORED:
            return self
        for field in ("username", "password"):
            if given.get(field) is None:
                raise mistaken("is missing: set username and password, or a token instead of both", field=field)
        return self


def _interpreter(path: str) -> str:
    name = path.rpartition("/")[2]
    if not path.startswith(("/", "~/")) or name not in ("python3", "python") or not path.isprintable():
        raise wrong(
            "the path of an interpreter named python3, such as /home/you/envs/x/bin/python3: its folder comes first on PATH",
            hint="set environment.setup to more than that",
        )
    return path


def _lines(value: Any) -> Any:
    return "\n".join(value) if isinstance(value, list) and all(isinstance(line, str) for line in value) else value


def _shell(text: str) -> str:
    if "\0" in text or len(text) > _LONGEST_SETUP:
        raise mistaken(f"must be lines of shell code with at most {_LONGEST_SETUP:,} characters")
    return text


_LONGEST_SETUP = 16_384
# What a shell that somebody logs in to has, and one that runs a script may lack.
_MODULE = [
    "for dethpc_file in /etc/profile.d/{modules,lmod,z00_lmod}.sh; do",
    '    ! type module >/dev/null 2>&1 && [ -r "$dethpc_file" ] && . "$dethpc_file"',
    "done",
]
_CONDA = [
    '[ "$(type -t conda)" = function ] || ! command -v "${CONDA_EXE:-conda}" >/dev/null || '
    'eval "$("${CONDA_EXE:-conda}" shell.bash hook)"'
]
_TELL = 'dethpc_tell() { dethpc_failed "environment.setup failed with exit code $1: $2"; }'


def _container_runtime(name: str | None, info: ValidationInfo) -> str | None:
    if name is not None and name not in RUNTIMES and info.context is not STORED:
        raise wrong("one of " + ", ".join(RUNTIMES))
    return name


class Environment(Section):
    omitted: ClassVar[frozenset[str]] = frozenset({"python", "setup", "venv", "container_runtime"})

    image: Annotated[Images, BeforeValidator(images)] = Images()
    environment_variables: Annotated[Variables, BeforeValidator(_variables)] = Variables()
    force_pull_image: bool = False
    registry_auth: Optional[RegistryAuth] = None
    ports: dict[str, Annotated[Whole, Field(ge=1, le=65535)]] = {}
    proxy_ports: list[ProxyPort] = []
    add_capabilities: list[str] = []
    drop_capabilities: list[str] = []
    pod_spec: Optional[dict[str, Any]] = None
    python: Annotated[Optional[str], AfterValidator(_interpreter)] = None
    setup: Annotated[Optional[str], BeforeValidator(_lines), AfterValidator(_shell)] = None
    venv: Optional[Literal["per-experiment"]] = None
    container_runtime: Annotated[Optional[str], AfterValidator(_container_runtime)] = None  # of those of the pool

    def shell_lines(self) -> list[str]:
        """Lines of bash that ``setup`` and ``python`` mean, for a shell with a command ``dethpc_failed`` that takes the reason when
        one of them fails, and does not return."""
        lines = []
        if self.setup:
            if re.search(r"\b(?:module|ml)\b", self.setup):
                lines += _MODULE
            if re.search(r"\bconda\b", self.setup):
                lines += _CONDA
            message = 'dethpc_failed "environment.setup ended its shell (exit, or set -e), and with it the job"'
            lines += [_TELL, *bash.watched("dethpc_tell"), f"trap {shlex.quote(message)} EXIT"]
            lines += [f"eval {shlex.quote(self.setup)}", f"{bash.UNWATCHED} EXIT; set +eu"]
        if self.python:
            folder = (
                f'"$HOME"/{shlex.quote(self.python[2:])}' if self.python.startswith("~/") else shlex.quote(self.python)
            )
            lines += [
                f"dethpc_python={folder}",
                '[ -x "$dethpc_python" ] || dethpc_failed "environment.python: $dethpc_python is not an interpreter on this node"',
                "unset CONDA_PREFIX CONDA_DEFAULT_ENV VIRTUAL_ENV PYTHONHOME",
                "dethpc_python=${dethpc_python%/*}",
                '[ ! -e "$dethpc_python/../pyvenv.cfg" ] || export VIRTUAL_ENV="${dethpc_python%/*}"',
                'export PATH="$dethpc_python:$PATH"',
            ]
        return lines

    def image_for(self, slot_type: str) -> str:
        """The image for slots of this type; "" where none is named."""
        return getattr(self.image, slot_type) or ""

    def variables(self, slot_type: str) -> dict[str, str]:
        """The variables for processes on slots of this type (cpu, cuda or rocm)."""
        return dict(item.split("=", 1) for item in getattr(self.environment_variables, slot_type))


def _not_the_workdir(path: str, info: ValidationInfo) -> str:
    """A relative path is one below the working directory, which is another folder on each node."""
    place = posixpath.normpath(posixpath.join(WORKDIR, path))
    outside = not path.startswith("/") and not place.startswith(f"{WORKDIR}/")
    if (outside or place == WORKDIR) and info.context is not STORED:
        raise wrong("a path below the working directory, or an absolute one")
    return path


def _propagation(word: str, info: ValidationInfo) -> str:
    if word not in PROPAGATIONS and info.context is not STORED:
        raise wrong("one of " + ", ".join(PROPAGATIONS))
    return word


class BindMount(Section):
    host_path: Annotated[str, AfterValidator(absolute)]
    container_path: Annotated[str, Field(min_length=1), AfterValidator(_not_the_workdir)]
    read_only: bool = False
    propagation: Annotated[str, AfterValidator(_propagation)] = "rprivate"


def without_registry_auth(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration without the password of its registry: who pulls gets that, and no run needs it."""
    section = config.get("environment")
    if not isinstance(section, dict) or not section.get("registry_auth"):
        return config
    return {**config, "environment": {**section, "registry_auth": None}}
