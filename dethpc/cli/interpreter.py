"""The description of the ``python3`` that an experiment's jobs run."""

from __future__ import annotations

import os

from dethpc.cli.output import Json
from dethpc.domain.trial_config import TrialConfig


def sentence(about: Json) -> str:
    """``about``: what the API says of an experiment. "" when nobody knows."""
    description = describe(about)
    if description != NONE:
        return f"python3 is {description}" if description else ""
    return "det: warning: this shell finds no python3, and so will its jobs: activate an environment, or set environment.python"


NONE = "none: the shell that created it finds no python3"


_SERVERS = ("jupyterlab", "tensorboard")  # which train nothing


def describe(about: Json) -> str:
    environment, config = about.get("environment"), TrialConfig.from_json(about.get("config") or {})
    if environment and environment.get("image"):
        return f"that of image {environment['image']}"
    if config.python:
        return f"{short(config.python)}, as environment.python says"
    if config.sets_up:
        return "what environment.setup leaves first on PATH"
    if not environment:
        return ""
    if not environment["python"]:
        return NONE
    versions = {name: version for name, version in (environment.get("packages") or {}).items() if name not in _SERVERS}
    packages = [f"{name} {version}" for name, version in versions.items()]
    whose = [] if environment["source"] == "shell" else ["the master's (its client sent no environment)"]
    return ", ".join([short(environment["python"]), *packages, *whose])


def short(path: str) -> str:
    """With ``~`` for the home directory."""
    home = os.path.expanduser("~").rstrip("/")
    return f"~{path[len(home) :]}" if home and path.startswith(f"{home}/") else path
