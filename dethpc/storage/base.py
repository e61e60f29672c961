"""``CheckpointStore``, the contract of every checkpoint store."""

from __future__ import annotations

import contextlib
import os
import re
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, Iterator, List, NamedTuple, Optional, Sequence, Union

from dethpc.errors import CheckpointError, CheckpointNotOwned
from dethpc.rundir.filesystem import FULL
from dethpc.storage.manifest import Checksums, listing
from dethpc.storage.ownership import Claim, Identity, Owner, objection

Selector = Callable[[str], bool]
"""Takes a path inside the checkpoint (directories end in "/") and says whether it is wanted."""

PathLike = Union[str, "os.PathLike[str]"]

_UUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*\Z")


def is_name(uuid: str) -> bool:
    """Whether a checkpoint can be called so, in any store."""
    return _UUID.match(uuid) is not None


def check_name(uuid: str) -> str:
    """Raises CheckpointError for a name that no checkpoint can have."""
    if not is_name(uuid):
        raise CheckpointError(f"not the name of a checkpoint: {uuid!r}")
    return uuid


def folder_to_add(source: PathLike) -> Path:
    """Where the directory ``source`` really is. Raises CheckpointError for what is none."""
    folder = Path(os.path.realpath(source))
    if not folder.is_dir():
        raise CheckpointError(f"{source} is not a directory")
    return folder


@contextlib.contextmanager
def full_disk_named(place: object) -> Iterator[None]:
    """What is raised when a disk or a quota is full then says which: a write to an open file does not."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(place)) from error


class Content(NamedTuple):
    """A file of a checkpoint that is being read: ``pieces`` are ``size`` bytes together. A directory ends in "/" and has none."""

    path: str
    size: int
    pieces: Iterator[bytes]


class Held(NamedTuple):
    """What a store holds under a name. ``whole``: it is a checkpoint; else what a writer has brought so far, who may have died, or
    what a deletion has left. ``size``: bytes of all its files. ``changed``: when any of it last changed, as Unix time by the
    store's clock."""

    uuid: str
    whole: bool
    size: int
    changed: float


class CheckpointStore(ABC):
    """Where checkpoints are: a folder that all machines share, or any other place that they reach.

    A checkpoint is a tree of files under a name, its ``uuid``. Paths inside it are relative, with ``/``; a directory ends in "/"
    and has 0 bytes. Nobody outside the store knows where and how it keeps them: what callers get is a directory of their own
    machine, to write into (``stage``) or to read from (``restore``).

    **Atomic.** Readers see a checkpoint whole from the end of ``publish`` on, and never before. It then survives a crash of every
    machine that wrote it. A writer that dies leaves no checkpoint.

    **Written by many.** Processes of several machines may write one checkpoint. Each stages it, and ``stage`` gives all processes
    of a machine the same directory; those of different machines may get different ones (a store that is no folder stages on each
    machine's own disk), so no two machines write the same path. Each brings its files to safety (``add``, ``flush``), which is
    where such a store uploads them. Then one process publishes, with the checksums and the listing that all have gathered, for it
    may not see the others' files. At the end one process of each other machine calls ``leave``.

    **Threads and processes.** Every method may be called from any thread, and one checkpoint may be written in one thread while
    another is written or read in others. No two calls write the same file of a checkpoint. A store may be pickled: its copy on
    another machine speaks to the same checkpoints.

    **Owned.** What is published names its ``owner``, the experiment and the cluster, in its manifest. Whoever acts for one
    experiment, to delete a checkpoint of it or to serve its run, makes a ``Claim``, which ``check_claim`` compares with the
    manifest: a name alone proves nothing. Whoever may read the storage may read every checkpoint in it.

    **Raises.** CheckpointError: a name that no checkpoint can have; one that is missing; one that is there already.
    CheckpointDamaged: it is there, and incomplete or damaged. OSError: the store cannot be reached, read or written, which says
    nothing about any checkpoint.

    ``str(store)`` says where it is, in words for people: a path or a URL. ``verify``: whether checksums of what is read are
    compared. ``owner``: whom the manifests of published checkpoints name; None: nobody. ``fallback``: another store, in which
    checkpoints wait while this one is away; reading and deleting look there, too, so what is there counts as stored.
    """

    verify = True
    owner: Optional[Owner] = None
    fallback: Optional[CheckpointStore] = None

    # --- writing --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def stage(self, uuid: str) -> Path:
        """The directory of this machine in which the checkpoint is being written; made by the first call.

        Raises CheckpointError when the checkpoint is published already, or the directory cannot be made.
        """

    @abstractmethod
    def add(self, uuid: str, source: PathLike, paths: Optional[Sequence[str]] = None) -> Checksums:
        """Copy files of the directory ``source`` (all, or ``paths``) into the staged checkpoint, and bring them to safety.

        Returns their checksums, for ``publish``. Raises CheckpointError when ``source`` is no directory.
        """

    @abstractmethod
    def flush(self, uuid: str, paths: Sequence[str]) -> Checksums:
        """Bring files that were written into the staged directory to safety. They do not change any more.

        Returns an entry for each of them, for ``publish``; ``Checksum.crcs`` is None where the store has not read the file.
        """

    @abstractmethod
    def publish(
        self,
        uuid: str,
        safe: Optional[Checksums] = None,
        files: Optional[Dict[str, int]] = None,
        *,
        defer_checksums: bool = False,
        owner: Optional[Owner] = None,
    ) -> Dict[str, int]:
        """Make the staged checkpoint visible and return its files, path -> bytes. One process calls it, of all that staged it.

        ``safe``: what ``add`` and ``flush`` returned, everywhere; this call brings all else that is staged on this machine to
        safety. ``files``: all of the checkpoint's files when several machines wrote them; None: what this machine sees. With
        ``defer_checksums`` large files may be published without checksums, for ``add_checksums`` to bring. ``owner``: whom its
        manifest names in the place of the store's ``owner``, for one who publishes another's.

        Raises CheckpointError when there is such a checkpoint already.
        """

    def put(self, uuid: str, source: PathLike) -> None:
        """Store a whole checkpoint that is in the folder ``source``. Raises OSError, also where there is too little room."""
        self.check_room(sum(listing(Path(source)).values()))
        self.stage(uuid)
        try:
            self.publish(uuid, self.add(uuid, source))
        except BaseException:
            self.discard(uuid)
            raise

    def bring(self, uuid: str) -> None:
        """Move a checkpoint from the ``fallback`` to where it belongs. Doing it twice does no harm.

        Raises CheckpointNotFound where it is not in the fallback, or was deleted meanwhile.
        """

    def check_room(self, size: int) -> None:
        """Raises OSError where a checkpoint of this size would be too much."""

    @property
    def may_be_away(self) -> bool:
        """Whether it is a service, which may not answer for a while though this machine is well."""
        return False

    def may_come_back(self, error: OSError) -> bool:
        """Whether ``add``, ``flush`` or ``publish`` that raised ``error`` may be called again: the store was away, and what is
        staged on this machine is whole. Never after a file system's own errors: it may have dropped what it could not write."""
        return False

    def forget(self, uuid: str) -> None:
        """Remove a checkpoint that is in another store by now. Of a ``fallback``: unlike after ``delete``, who brings it to its
        store at the same moment leaves it there."""
        self.delete(uuid)

    def full(self) -> str:
        """Why nothing more can be written just now, where its disk or a quota there is full; "" where there is room."""
        return ""

    @abstractmethod
    def discard(self, uuid: str) -> None:
        """Forget a staged checkpoint, here and in the store, and what an interrupted deletion has left. Does nothing to a published
        one, or when nothing is staged."""

    def leave(self, uuid: str) -> None:
        """Remove what ``stage`` made on this machine alone, which has written its part or failed to.

        May be called after the machine's last ``add`` or ``flush``, while another publishes. Nothing to do where all machines
        stage in one place.
        """

    @abstractmethod
    def without_checksums(self, uuid: str) -> List[str]:
        """Files of a published checkpoint that have no checksums yet."""

    @abstractmethod
    def add_checksums(self, uuid: str, paths: Sequence[str], part: int = 0) -> None:
        """Read files of a published checkpoint and add their checksums. It takes one core, and may take minutes.

        Processes that share the work at once each have a ``part`` of their own.
        """

    def share(self, uuid: str, earlier: str, paths: Sequence[str]) -> int:
        """Keep what two published checkpoints have in common once: of the files ``paths`` of the first, those whose content the
        second has, too. It reads them both.

        Returns the bytes that are not kept twice any more. Each of the two stays whole when the other is deleted. Does nothing
        where a store cannot share content, or when ``earlier`` is not there.
        """
        return 0

    # --- reading --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def exists(self, uuid: str) -> bool:
        """Whether there is such a checkpoint. A name that no checkpoint can have has none. Raises OSError where nobody can say."""

    @abstractmethod
    def restore(
        self, uuid: str, selector: Optional[Selector] = None, *, verify: Optional[Selector] = None
    ) -> ContextManager[Path]:
        """A directory of this machine that holds the checkpoint until the block ends, for reading.

        With ``selector`` only what it wants is sure to be there. Checksums have been compared when the block begins. ``verify``:
        of which files this machine has to compare them, when other machines compare the rest; a store whose machines do not all
        read the same bytes ignores it. Raises CheckpointError that names a missing or damaged file.
        """

    @abstractmethod
    def download(self, uuid: str, target: PathLike, selector: Optional[Selector] = None) -> None:
        """Copy the checkpoint, or what ``selector`` wants of it, to the directory ``target``, which is created.

        Raises CheckpointError that names a missing or damaged file; ``target`` is then incomplete.
        """

    @abstractmethod
    def read(self, uuid: str, selector: Optional[Selector] = None) -> Iterator[Content]:
        """What ``selector`` wants of the checkpoint, in the order of the paths, read file after file in little memory.

        Take a file's pieces before the next file. Its checksum is compared at their end: they raise CheckpointDamaged then, and
        as many bytes as ``size`` says came before that, or fewer. Before the first file all sizes have been compared.
        """

    @abstractmethod
    def files(self, uuid: str) -> Dict[str, int]:
        """What is in the checkpoint: path -> bytes."""

    @abstractmethod
    def metadata(self, uuid: str) -> Dict[str, Any]:
        """What the checkpoint's ``metadata.json`` says; empty without one."""

    def is_there(self) -> bool:
        """Whether the place is there at all, be it empty. A folder that is not there may not be mounted here; or nothing was
        written to it yet. Raises OSError."""
        return True

    @abstractmethod
    def names(self) -> Iterator[Held]:
        """All that the store holds under names of checkpoints, in no order; what is beside them is not among it.

        What is not ``whole`` is removed by ``discard``. What is published or deleted meanwhile may be missing. It looks at every
        file: not for a request. Raises OSError.
        """

    # --- deleting -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def delete(self, uuid: str, globs: Sequence[str] = ("**/*",), *, claim: Optional[Claim] = None) -> Dict[str, int]:
        """Delete the files that match and return what is left. A checkpoint that is not there is deleted already.

        A directory that matches goes with all that is in it. ``**/*`` takes everything, whatever else is in ``globs``. ``claim``:
        for which experiment, checked first, as by ``check_claim``; None where a person names the checkpoint of a storage, or where
        the caller has just published it.
        """

    @abstractmethod
    def identity(self, uuid: str) -> Identity:
        """Whose the checkpoint is, as it says itself. Reads no file but its manifest. Raises OSError, and CheckpointError for a
        name that no checkpoint can have."""

    def check_claim(self, uuid: str, claim: Claim) -> None:
        """Raises CheckpointNotOwned for what is there and does not belong to the claimant, OSError, and CheckpointError for a name
        that no checkpoint can have."""
        if why := objection(uuid, self.identity(uuid), claim):
            raise CheckpointNotOwned(f"checkpoint {uuid} in {self}: {why}")

    @abstractmethod
    def surviving(self, uuid: str, globs: Sequence[str]) -> Dict[str, int]:
        """What ``delete`` would leave. Deletes nothing."""

    # --- what is no checkpoint ------------------------------------------------------------------------------------------

    @abstractmethod
    def synced_folder(self, folder: str) -> ContextManager[Path]:
        """A directory of this machine whose files are in the store after the block, in ``folder`` beside the checkpoints.

        For TensorBoard and for what jobs put out: each file replaces an earlier one of its name, the others stay. The directory may
        be empty at first even when ``folder`` has files. Nothing here is atomic.
        """

    @abstractmethod
    def mirror(self, folder: str, target: PathLike) -> None:
        """Show what is in ``folder`` beside the checkpoints at ``target`` on this machine, where there is nothing yet, or what an
        earlier call made.

        Where the store is a folder, ``target`` is a link to it. Other stores copy what is new; a file that has grown grows in
        place, for programs that have it open, and one that is gone from the store stays. Raises OSError.
        """

    @abstractmethod
    def remove_folder(self, folder: str) -> None:
        """Remove a folder beside the checkpoints with all that is in it, if it is there. Raises OSError."""

    @abstractmethod
    def mark(self) -> ContextManager[str]:
        """Leave something where checkpoints go, for other machines to find until the block ends; nothing stays. Raises OSError that
        says why nothing can be written there."""

    @abstractmethod
    def find_mark(self, mark: str) -> None:
        """Find what another machine left, and write there as well. Raises OSError when this machine cannot."""
