"""Context directories: from the list of files that clients send to a tar.gz, and back to a tree for readers."""

from __future__ import annotations

import base64
import binascii
import contextlib
import gzip
import hashlib
import io
import logging
import os
import re
import tarfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Protocol

from dethpc.config.secrets import masked_text
from dethpc.context import LIMIT
from dethpc.domain.context_files import WORTH_ASKING, digest
from dethpc.errors import ContextError, NotFound
from dethpc.rundir.files import open_regular, replacement
from dethpc.rundir.home import Home
from dethpc.rundir.tree import stays

log = logging.getLogger(__name__)

REMEDY = "send the folder that it was made of again with det experiment create, which writes it again"

DAMAGED = (tarfile.TarError, OSError, EOFError, zlib.error)
"""What it raises to read a tar.gz that is cut off, or was altered."""


class Member(Protocol):
    """A file as a client sends it; ``type`` is the code of the tar type flag, ``content`` base64."""

    path: str
    type: int
    content: str
    mtime: int
    mode: int


def pack(members: Iterable[Member]) -> bytes:
    """The files as tar.gz; the same files give the same bytes.

    A link's content is its target. Raises: ContextError when they are too large, or when one is neither file, directory nor link,
    or would lie or point outside.
    """
    total = 0
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member in members:
            info = tarfile.TarInfo(_inside(member.path))
            info.mtime, info.mode = member.mtime, member.mode & 0o777
            if member.type == ord(tarfile.DIRTYPE):
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
                continue
            if member.type == ord(tarfile.SYMTYPE):
                info.type, info.linkname = tarfile.SYMTYPE, _target(member)
                tar.addfile(info)
                continue
            if member.type not in (ord(tarfile.REGTYPE), ord(tarfile.AREGTYPE), 0):
                raise ContextError(f"{member.path}: only files, directories and links can be sent")
            content = decoded(member.path, member.content)
            total += len(content)
            if total > LIMIT:
                raise ContextError(
                    f"the context directory is larger than {LIMIT >> 20} MiB; exclude data with .detignore"
                )
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), compresslevel=6, mtime=0)


def decoded(name: str, content: str) -> bytes:
    """What a client sent as base64. Raises ContextError."""
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        raise ContextError(f"{name}: the content is not base64") from None


def _target(member: Member) -> str:
    target = decoded(member.path, member.content).decode("utf-8", "surrogateescape")
    if not target or "\0" in target or not stays(_inside(member.path), target):
        raise ContextError(f"{member.path} is a link to outside the context directory ({target!r})")
    return target


def _inside(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise ContextError(f"{path!r} is not a path inside the context directory")
    if any("\ud800" <= character <= "\udfff" for character in path):
        raise ContextError(f"the path {path!r} is not Unicode text; rename the file, or leave it out with .detignore")
    return str(PurePosixPath(path))


def keep(home: Home, targz: bytes) -> str:
    """Store a context; returns its SHA-256. It is whole on disk when this returns.

    One that is there is touched, so that the deletion of the last experiment that had it leaves it, and written again where it is
    damaged. Who has made an experiment with it calls this again, for a deletion may have come between.
    """
    sha256 = hashlib.sha256(targz).hexdigest()
    path = home.context(sha256)
    try:
        os.utime(path)
        if not (why := damage(path)):
            return sha256
        log.warning("the context directory %s is damaged (%s); it is written again", path, why)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, exist_ok=True)
    with replacement(path) as file:
        file.write(targz)
    return sha256


def sweep(home: Home) -> None:
    """Remove what a master that was killed while it stored a context has left. Only for who has the lease, before it serves."""
    for path in home.contexts.glob("*.tar.*"):
        if path.suffix != ".gz":
            path.unlink(missing_ok=True)


def damage(path: Path) -> str:
    """What is wrong with a stored context; "" when it is what was stored: it is named by its SHA-256. Raises: FileNotFoundError."""
    digest = hashlib.sha256()
    try:
        with open_regular(path) as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    except FileNotFoundError:
        raise
    except OSError as error:
        return str(error.strerror)
    return "" if path.name == f"{digest.hexdigest()}.tar.gz" else "checksum mismatch"


def stored(home: Home, sha256: str, owner: str) -> bytes:
    """The context as tar.gz. ``owner``: whose it is, in words. Raises ContextError where somebody has removed or altered it."""
    path = home.context(sha256)
    try:
        targz = path.read_bytes()
    except FileNotFoundError:
        raise ContextError(f"{owner} has lost its context directory: there is no {path}") from None
    if hashlib.sha256(targz).hexdigest() != sha256:
        raise ContextError(f"the context directory of {owner} is damaged ({path}: checksum mismatch); {REMEDY}")
    return targz


def remember(home: Home, sent: Sequence[Member], sha256: str) -> None:
    """Let ``by_digest`` find the stored context of these files by their digest, where it is worth asking for."""
    if sum(len(file.content) for file in sent) < WORTH_ASKING:
        return
    link = home.context_of_files(digest((file.path, file.type, file.content, file.mtime, file.mode) for file in sent))
    link.parent.mkdir(mode=0o700, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        link.symlink_to(os.path.join("..", home.context(sha256).name))


def by_digest(home: Home, files: str) -> bytes:
    """The stored context, as tar.gz, of files with this digest. Raises: NotFound, also where it is damaged."""
    if re.fullmatch("[0-9a-f]{64}", files):
        path = home.context_of_files(files)
        with contextlib.suppress(OSError):
            stored = path.read_bytes()
            if path.readlink().name == home.context(hashlib.sha256(stored).hexdigest()).name:
                return stored
    raise NotFound("no context directory with these files is stored")


def members(targz: bytes) -> list[tarfile.TarInfo]:
    """Files and directories, by path. Raises: ContextError."""
    try:
        with tarfile.open(fileobj=io.BytesIO(targz), mode="r:gz") as tar:
            return sorted((member for member in tar if member.isfile() or member.isdir()), key=lambda m: m.name)
    except DAMAGED as error:
        raise ContextError(f"the stored context directory is damaged: {error}") from error


def content(targz: bytes, path: str, most: int = -1) -> bytes:
    """One file, its first ``most`` bytes (-1: all). Raises: NotFound, ContextError."""
    try:
        with tarfile.open(fileobj=io.BytesIO(targz), mode="r:gz") as tar:
            file = tar.extractfile(path)
            if file is None:
                raise NotFound(f"{path} is a directory")
            return file.read(most)
    except KeyError:
        raise NotFound(f"no file {path} in the context directory") from None
    except DAMAGED as error:
        raise ContextError(f"the stored context directory is damaged: {error}") from error


LARGEST_CONFIGURATION = 1 << 20
"""Bytes of a file that is looked at for secrets; a larger one is left out for those who may not see them."""


def without_secrets(targz: bytes) -> bytes:
    """The files, with the secrets of those in YAML hidden as they are in configurations. Raises ContextError."""
    out = io.BytesIO()
    try:
        with (
            tarfile.open(fileobj=io.BytesIO(targz), mode="r:gz") as source,
            tarfile.open(fileobj=out, mode="w:gz", format=tarfile.PAX_FORMAT) as target,
        ):
            for member in source:
                content = source.extractfile(member) if member.isfile() else None
                data = b"" if content is None else content.read()
                if content is not None and member.name.lower().endswith((".yaml", ".yml", ".json")):
                    data = _masked(data)
                    member.size = len(data)
                target.addfile(member, None if content is None else io.BytesIO(data))
    except DAMAGED as error:
        raise ContextError(f"the context directory is damaged: {error}; {REMEDY}") from None
    return out.getvalue()


def _masked(data: bytes) -> bytes:
    if len(data) > LARGEST_CONFIGURATION:
        return b""
    try:
        return masked_text(data.decode()).encode()
    except UnicodeDecodeError:
        return data
