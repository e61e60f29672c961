"""The files of a checkpoint as one archive, streamed from its storage to clients that cannot read the storage themselves."""

from __future__ import annotations

import gzip
import logging
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from itertools import chain
from typing import IO, Any

from dethpc import storage
from dethpc.domain.facts import Checkpoint
from dethpc.domain.states import CheckpointState
from dethpc.domain.trial_config import TrialConfig
from dethpc.errors import CheckpointError, CheckpointNotFound, CheckpointNotOwned, MasterError, NotFound, Refused
from dethpc.master.experiments.archives.streaming import Sent
from dethpc.master.http.auth import Forbidden
from dethpc.rundir.home import Home
from dethpc.storage.base import CheckpointStore, Content, Selector
from dethpc.storage.ownership import Claim

_log = logging.getLogger(__name__)

_AT_ONCE = 1 << 20
"""Bytes that are sent at once."""
_WHOLE = (CheckpointState.COMPLETED, CheckpointState.PARTIALLY_DELETED)

KINDS = {
    "application/x-tar": "tar",
    "application/gzip": "tar.gz",
    "application/x-gzip": "tar.gz",
    "application/x-gtar": "tar.gz",
    "application/x-tgz": "tar.gz",
    "application/zip": "zip",
}
"""What a client may ask for, and how the archive's name ends."""


def kind_of(accept: str) -> str:
    """The first of KINDS that a client takes. Raises Refused."""
    kinds = [kind.partition(";")[0].strip().lower() for kind in accept.split(",")]
    for kind in kinds:
        if kind in KINDS:
            return kind
        if kind in ("", "*/*", "application/*", "application/json"):  # as a client asks that says nothing about it
            return "application/x-tar"
    raise Refused(f"Accept must be one of {', '.join(KINDS)}, not {accept[:100]!r}")


def archive(
    checkpoint: Checkpoint,
    config: dict[str, Any],
    home: Home,
    kind: str,
    selector: Selector | None = None,
    claim: Claim | None = None,
) -> Iterator[bytes]:
    """The archive, in pieces. A reader that gets no end has no archive. ``config``: the experiment's. ``claim``: that of a run's
    experiment, which is served its own checkpoints alone; None: the owner reads whatever is there.

    Raises Refused, NotFound, MasterError where the storage cannot be read, and CheckpointError, all before the first piece.
    """
    store = _place(checkpoint, TrialConfig.from_json(config).checkpoint_storage, home)
    if claim is not None:
        _check(store, checkpoint.uuid, claim)
    files = _opened(store, checkpoint.uuid, selector)
    write = _zip if KINDS[kind] == "zip" else _tar
    return _pieces(checkpoint, files, write, zipped=KINDS[kind] == "tar.gz")


def _place(checkpoint: Checkpoint, configured: dict[str, Any], home: Home) -> CheckpointStore:
    if checkpoint.decided not in _WHOLE:
        why = f" ({checkpoint.reason})" if checkpoint.reason else ""
        raise Refused(f"checkpoint {checkpoint.uuid} is {checkpoint.decided.value}{why}: it cannot be downloaded")
    if place := storage.elsewhere(checkpoint.storage, configured):
        raise Refused(
            f"checkpoint {checkpoint.uuid} is in {place}, where the training code put it, and not in the checkpoint_storage of "
            "its experiment: the master reads nothing there; copy it by hand"
        )
    return storage.build(configured, spool=home.spool)


def _check(store: CheckpointStore, uuid: str, claim: Claim) -> None:
    try:
        store.check_claim(uuid, claim)
    except CheckpointNotOwned as error:
        raise Forbidden(f"{error}; a run's token reads its own experiment's checkpoints alone") from error
    except OSError as error:
        raise MasterError(f"the master cannot read {store}: {error}") from error


def _opened(store: CheckpointStore, uuid: str, selector: Selector | None) -> Iterator[Content]:
    """Up to the first file: what is wrong with the checkpoint as a whole is said instead of an archive."""
    files = store.read(uuid, selector)
    try:
        first = next(files, None)
    except CheckpointNotFound as error:
        raise NotFound(str(error)) from error
    except OSError as error:
        raise MasterError(f"the master cannot read {store}: {error}") from error
    return files if first is None else chain([first], files)


def _pieces(
    checkpoint: Checkpoint, files: Iterator[Content], write: Callable[..., Iterator[None]], zipped: bool
) -> Iterator[bytes]:
    sent = Sent()
    # Weights hardly get smaller, and a login node has other things to do than to find that out.
    out: Any = gzip.GzipFile(fileobj=sent, mode="wb", compresslevel=0, mtime=0) if zipped else sent
    try:
        for _ in write(out, files, checkpoint.reported_at):
            if sent.size >= _AT_ONCE:
                yield sent.take()
    except (OSError, CheckpointError) as error:
        _log.warning("the archive of checkpoint %s broke off: %s", checkpoint.uuid, error)
        raise
    if zipped:
        out.close()
    yield sent.take()


def _tar(out: IO[bytes], files: Iterator[Content], at: float) -> Iterator[None]:
    for content in files:
        info = tarfile.TarInfo(content.path)
        info.size, info.mtime, info.mode = content.size, int(at), 0o644
        if content.path.endswith("/"):
            info.type, info.mode = tarfile.DIRTYPE, 0o755
        out.write(info.tobuf(tarfile.PAX_FORMAT))
        for piece in content.pieces:
            out.write(piece)
            yield
        out.write(bytes(-content.size % tarfile.BLOCKSIZE))
        yield
    out.write(bytes(2 * tarfile.BLOCKSIZE))


def _zip(out: IO[bytes], files: Iterator[Content], at: float) -> Iterator[None]:
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for content in files:
            if content.path.endswith("/"):
                archive.writestr(content.path, b"")
                continue
            with archive.open(content.path, "w", force_zip64=True) as member:
                for piece in content.pieces:
                    member.write(piece)
                    yield
