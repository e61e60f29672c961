"""Archives of experiments with their checkpoint files: this process reads and writes them, so it needs access to the storage."""

from __future__ import annotations

import os
import shutil
import uuid as uuids
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from dethpc import storage
from dethpc.cli.output import Json
from dethpc.client.nouns import checkpoints, copies, experiments
from dethpc.client.session import Session
from dethpc.domain.copies import checkpoint_file
from dethpc.errors import CheckpointError, Refused
from dethpc.rundir.home import Home, home
from dethpc.storage.base import CheckpointStore
from dethpc.storage.ownership import Owner

Progress = Callable[[str, int, int], None]
"""Hears what is being done, how many bytes of it are done, and of how many (0: nobody knows)."""

KINDS = ("none", "best", "latest", "all")
_AT_ONCE = 1 << 20


class Exported(NamedTuple):
    """The checkpoints whose files are in the archive, and why others are not, by their uuids."""

    checkpoints: list[str]
    left_out: dict[str, str]


def export(session: Session, experiment: int, target: Path, kind: str, progress: Progress) -> Exported:
    """Write the archive of an experiment, with the files of its checkpoints of this ``kind``, but for those that are damaged or not
    there.

    ``target`` appears when it is whole. Raises NotFound, Refused, OSError.
    """
    chosen = _checkpoints(session, experiment, kind)
    packed, left_out = [], {}
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for piece in copies.export(session, experiment):
                file.write(piece)
                progress("rows, metrics, logs", file.tell(), 0)
        with zipfile.ZipFile(part):
            pass  # it has its end; to append to what has none would hide that
        with zipfile.ZipFile(part, "a", zipfile.ZIP_STORED) as archive:
            for checkpoint in chosen:
                try:
                    _pack(archive, checkpoint, progress)
                    packed.append(checkpoint["uuid"])
                except CheckpointError as error:  # found before a byte of it is written
                    left_out[checkpoint["uuid"]] = str(error)
        with open(part, "rb") as whole:
            os.fsync(whole.fileno())
        os.replace(part, target)
    except zipfile.BadZipFile:
        raise Refused(f"the master's answer was cut off: {target} was not written; try again") from None
    finally:
        part.unlink(missing_ok=True)
    return Exported(packed, left_out)


def _checkpoints(session: Session, experiment: int, kind: str) -> list[Json]:
    """The experiment's checkpoints that are whole, of this kind."""
    if kind == "none":
        return []
    rows = [
        row
        for row in experiments.checkpoints(session, experiment, best=1 if kind == "best" else None)
        if row.get("state") in ("STATE_COMPLETED", "COMPLETED")
    ]
    if kind == "latest":
        rows = list({(row.get("training") or {}).get("trialId"): row for row in rows}.values())
    return rows


def _pack(archive: zipfile.ZipFile, checkpoint: Json, progress: Progress) -> None:
    uuid = checkpoint["uuid"]
    total = sum(int(size) for size in (checkpoint.get("resources") or {}).values())
    done = 0
    store = storage.build(checkpoints.storage(checkpoint), spool=Home(home()).spool)
    with store.restore(uuid) as folder:
        for path in sorted(folder.rglob("*")):
            name = f"checkpoints/{uuid}/{path.relative_to(folder).as_posix()}"
            if path.is_dir():
                archive.writestr(f"{name}/", b"")
                continue
            with open(path, "rb") as source, archive.open(name, "w", force_zip64=True) as member:
                while piece := source.read(_AT_ONCE):
                    member.write(piece)
                    done += len(piece)
                    progress(f"checkpoint {uuid}", done, total)


def take_in(session: Session, archive: Path, progress: Progress, again: bool = False) -> Json:
    """Make an experiment of an archive; returns {"experiment", "before"}. The checkpoints whose files it has are copied first, to
    where this installation keeps its own. One that was taken in ``before`` is left as it is, unless ``again``. Raises Refused,
    CheckpointError, OSError; nothing of it is left then."""
    contents, uuid_ = copies.look(session, archive), str(uuids.uuid4())
    if not (held := contents.get("checkpoints")) or (contents.get("takenIn") and not again):
        return copies.take_in(session, archive, {}, uuid_, again)
    store = storage.build(contents["checkpointStorage"], owner=Owner(contents.get("clusterId") or "", uuid_))
    copied: dict[str, str] = {}
    try:
        for uuid in held:
            name = str(uuids.uuid4()) if uuid in (contents.get("known") or ()) or store.exists(uuid) else uuid
            _unpack(archive, uuid, store, name, progress)
            copied[uuid] = name
        progress("rows, metrics, logs", 0, 0)
        answer = copies.take_in(session, archive, copied, uuid_, again)
    except (Refused, CheckpointError, OSError):
        _drop(store, copied)
        raise
    if answer.get("before"):  # another client was faster
        _drop(store, copied)
    return answer


def _drop(store: CheckpointStore, copied: dict[str, str]) -> None:
    for name in copied.values():
        store.delete(name)


def _unpack(archive: Path, uuid: str, store: CheckpointStore, name: str, progress: Progress) -> None:
    """Raises CheckpointError where the archive is damaged; nothing is left then."""
    with zipfile.ZipFile(archive) as source:
        members = [(info, checkpoint_file(info.filename)) for info in source.infolist()]
        mine = [(info, of.path) for info, of in members if of is not None and of.of == uuid]
        total, done = sum(info.file_size for info, _ in mine), 0
        staged = store.stage(name)
        try:
            for info, path in mine:
                target = staged / path
                if path.endswith("/"):
                    target.mkdir(parents=True, exist_ok=True)
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                with source.open(info) as member, open(target, "xb") as file:
                    shutil.copyfileobj(member, file, _AT_ONCE)
                done += info.file_size
                progress(f"checkpoint {uuid}", done, total)
            store.publish(name)
        except (zipfile.BadZipFile, EOFError, ValueError) as error:
            store.discard(name)
            raise CheckpointError(f"checkpoint {uuid} of {archive} is damaged: {error}") from None
        except BaseException:
            store.discard(name)
            raise
