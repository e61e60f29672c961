"""Which ``python3`` an experiment's jobs run, in words."""

from __future__ import annotations

import os
from typing import Any

from dethpc.domain.trial_config import TrialConfig

Json = dict[str, Any]


def sentence(about: Json) -> str:
    """``about``: what the API says of an experiment. "" when nobody knows."""
    said = words(about)
    if said != NONE:
        return f"python3 is {said}" if said else ""
    return "det: warning: this shell finds no python3, and so will its jobs: activate an environment, or set environment.python"


NONE = "none: the shell that created it finds no python3"


def words(about: Json) -> str:
    found, wanted = about.get("environment"), TrialConfig.from_json(about.get("config") or {})
    if found and found.get("image"):
        return f"that of image {found['image']}"
    if wanted.python:
        return f"{short(wanted.python)}, as environment.python says"
    if wanted.sets_up:
        return "what environment.setup leaves first on PATH"
    if not found:
        return ""
    if not found["python"]:
        return NONE
    packages = [f"{name} {version}" for name, version in (found.get("packages") or {}).items()]
    whose = [] if found["source"] == "shell" else ["the master's (its client sent no environment)"]
    return ", ".join([short(found["python"]), *packages, *whose])


def short(path: str) -> str:
    """With ``~`` for the home directory."""
    home = os.path.expanduser("~").rstrip("/")
    return f"~{path[len(home) :]}" if home and path.startswith(f"{home}/") else path
