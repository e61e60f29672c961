"""Names of images, as users write them: what each one means.

``determinedai/environments:cuda-0.38``, ``nvcr.io/nvidia/pytorch:24.01-py3``, ``docker://registry:5000/x@sha256:...`` and enroot's
``docker://nvcr.io#nvidia/pytorch`` name an image in a registry; ``oras://ghcr.io/lab/x:1`` a .sif that is kept in one; a path an
image that is there: a ``.sif`` file, a ``.sqsh`` file, or an unpacked folder.
"""

from __future__ import annotations

import re
from typing import NamedTuple

REGISTRY, ORAS, SIF, SQUASHFS, FOLDER = "registry", "oras", "sif", "squashfs", "folder"
"""What an image may be: in a registry as layers, in a registry as a .sif, or a path to one of three kinds."""

FORMATS = {
    "apptainer": SIF,
    "singularity": SIF,
    "charliecloud": FOLDER,
    "podman": FOLDER,
    "enroot": SQUASHFS,
    "pyxis": SQUASHFS,
}
"""What each runtime starts of an image that was pulled."""

DOCKER_HUB, LATEST, MOST = "docker.io", "latest", 512

ALLOWED = (
    "a name such as ubuntu:24.04 or registry:5000/team/image@sha256:..., docker:// or oras:// before it, or the path of a "
    ".sif, of a .sqsh or of an unpacked folder"
)

_HOST = re.compile(
    r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[0-9a-fA-F:]+\])(?::\d{1,5})?"
)
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_OF_DOCKER_HUB = ("index.docker.io", "registry-1.docker.io", "registry.hub.docker.com")


class Image(NamedTuple):
    """``kind``: one of the above. Of an image in a registry ``registry`` is HOST or HOST:PORT, and ``tag`` or ``digest`` is set, or
    both: then the digest counts. Of a path only ``path`` is."""

    kind: str
    registry: str = ""
    repository: str = ""
    tag: str = ""
    digest: str = ""
    path: str = ""

    @property
    def remote(self) -> bool:
        """It has to be pulled."""
        return self.kind in (REGISTRY, ORAS)

    @property
    def name(self) -> str:
        """The name in full, by which two spellings of one image are the same; ``parse`` reads it again."""
        if not self.remote:
            return self.path
        scheme = "oras://" if self.kind == ORAS else ""
        tag, divided = f":{self.tag}" if self.tag else "", "/"
        if not _is_host(self.registry):  # a short one, which a slash would make a part of Docker Hub's
            scheme, divided = scheme or "docker://", "#"
        return f"{scheme}{self.registry}{divided}{self.repository}{tag}{f'@{self.digest}' if self.digest else ''}"

    def at(self, digest: str) -> Image:
        """The same, as it was when its registry gave this digest for it."""
        return self._replace(digest=digest) if self.remote else self


def parse(text: str) -> Image:
    """What ``text`` names. Raises ValueError in words that say what is allowed."""
    if not text or len(text) > MOST or not text.isprintable() or " " in text:
        raise ValueError(f"{text[:80]!r} is no image: {ALLOWED}")
    scheme, separator, rest = text.partition("://")
    if separator and scheme.lower() in ("docker", "oras"):
        return _in_registry(ORAS if scheme.lower() == "oras" else REGISTRY, rest, text)
    if separator and scheme.lower() != "file":
        raise ValueError(f"{text!r}: images are not taken from {scheme}://; write {ALLOWED}")
    path = rest if separator else text
    if path.startswith(("/", "~/")):
        return _local(path)
    if separator or path.startswith((".", "~")) or path.endswith((".sif", ".sqsh", ".squashfs")):
        raise ValueError(f"{text!r}: the path of an image begins with / or ~/, for a job starts in a folder of its own")
    return _in_registry(REGISTRY, text, text)


def _local(path: str) -> Image:
    kind = SIF if path.endswith(".sif") else SQUASHFS if path.endswith((".sqsh", ".squashfs")) else FOLDER
    return Image(kind, path=path)


def _is_host(text: str) -> bool:
    """Whether this before a slash is the address of a registry, as Docker has it."""
    return "." in text or ":" in text or text == "localhost"


def _in_registry(kind: str, rest: str, text: str) -> Image:
    rest, at, digest = rest.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        raise ValueError(f"{text!r}: after @ comes sha256: and 64 hexadecimal digits")
    host, of_enroot, path = rest.partition("#")
    if not of_enroot:
        host, _, path = rest.partition("/")
        if not path or not _is_host(host):
            host, path = DOCKER_HUB, rest
    repository, colon, tag = path.partition(":")
    if host.lower() in _OF_DOCKER_HUB:
        host = DOCKER_HUB
    if host == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    if not _HOST.fullmatch(host):
        raise ValueError(f"{text!r}: {host!r} is no address of a registry, such as registry.example:5000")
    if not _REPOSITORY.fullmatch(repository):
        raise ValueError(
            f"{text!r}: {repository!r} is no name of an image: small letters and digits, with . _ - / between"
        )
    if colon and not _TAG.fullmatch(tag):
        raise ValueError(f"{text!r}: {tag!r} is no tag: letters, digits, . _ -, at most 128")
    return Image(kind, host, repository, tag or ("" if digest else LATEST), digest)
