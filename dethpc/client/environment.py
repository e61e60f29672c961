"""The environment of this shell, which is sent along for the experiment's jobs."""

from __future__ import annotations

import os
import re
import shutil
from binascii import b2a_base64
from typing import Dict, Iterator

from dethpc.domain.environment import Environment
from dethpc.errors import ContextError

_PACKAGES = ("torch", "tensorflow", "jax", "keras", "lightning", "transformers", "jupyterlab", "tensorboard")
"""Frameworks, and what notebooks and TensorBoards start."""


def here() -> Environment:
    """This process's, which is the shell's: the interpreter that runs ``det`` adds nothing to it."""
    python = shutil.which("python3") or ""
    return Environment.of(os.environb, python=python, packages=packages(python) if python else {})


def encoded() -> str:
    """``here``, as requests carry it. Raises ContextError."""
    try:
        return b2a_base64(here().to_bytes(), newline=False).decode()
    except ValueError as error:
        raise ContextError(str(error)) from None


def packages(python: str) -> Dict[str, str]:
    """Which of ``_PACKAGES`` an interpreter finds, name -> version, by the names of folders: starting it would take longer."""
    versions: Dict[str, str] = {}
    for folder in _folders(python):
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            package, _, version = name.partition("-")
            if package in _PACKAGES and version.endswith(".dist-info"):
                versions.setdefault(package, version[: -len(".dist-info")])
    return {name: versions[name] for name in _PACKAGES if name in versions}


def _folders(python: str) -> Iterator[str]:
    """Folders that it imports from, as far as one can tell without asking it; the first that holds a package counts."""
    yield from filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    prefix = os.path.dirname(os.path.dirname(os.path.abspath(python)))
    version = r"python3(\.\d+)?\Z"
    settings = _settings(os.path.join(prefix, "pyvenv.cfg"))
    own = list(_libraries(prefix, version))
    for folder in own:
        yield folder
        yield from _pth(folder)
    if settings and settings.get("include-system-site-packages") != "true":
        return
    base = os.path.dirname(os.path.dirname(os.path.realpath(python)))
    name = os.path.basename(os.path.realpath(python))
    exact = re.escape(name) + r"\Z" if re.match(r"python3\.\d+\Z", name) else version
    yield os.path.expanduser(f"~/.local/lib/{name}/site-packages")
    for root in (base, os.path.join(base, "local")):
        yield from _libraries(root, exact)
    yield os.path.join(base, "lib", "python3", "dist-packages")


def _libraries(prefix: str, version: str) -> Iterator[str]:
    lib = os.path.join(prefix, "lib")
    try:
        names = sorted(os.listdir(lib))
    except OSError:
        return
    for name in names:
        if re.match(version, name):
            for packages in ("site-packages", "dist-packages"):
                folder = os.path.join(lib, name, packages)
                if os.path.isdir(folder):
                    yield folder


def _pth(folder: str) -> Iterator[str]:
    """Folders that its .pth files add."""
    for name in os.listdir(folder):
        if name.endswith(".pth"):
            try:
                with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                    lines = file.read(1 << 16).splitlines()
            except OSError:
                continue
            yield from (line.strip() for line in lines if line.startswith("/"))


def _settings(file: str) -> Dict[str, str]:
    try:
        with open(file, encoding="utf-8", errors="replace") as lines:
            pairs = [line.partition("=") for line in lines]
    except OSError:
        return {}
    return {key.strip(): value.strip().lower() for key, _, value in pairs}
