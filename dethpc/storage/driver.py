"""``Driver``, the base of object stores: an fsspec driver whose calls are retried and raise only OSError."""

from __future__ import annotations

import errno
import os
import time
from typing import Any, Callable, Dict, NamedTuple, Optional, Protocol, Sequence, Tuple, TypeVar

from dethpc.domain.secrets import hide_signatures
from dethpc.errors import MissingDriver

T = TypeVar("T")

NO_PATIENCE = 0.0
USUAL = 30.0  # seconds for which a store that does not answer is asked again
_LONGEST_PAUSE = 15.0
_SAID_AFTER = 20.0

_FOR_GOOD = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError)
_FOR_GOOD_BY_NAME = frozenset(
    {
        "ClientAuthenticationError",
        "NoCredentialsError",
        "ParamValidationError",
        "PartialCredentialsError",
        "ProfileNotFound",
        "RefreshError",
    }
)
_TRY_LATER = frozenset({408, 409, 425, 429})  # of the answers that blame the request


class StoreAway(OSError):
    """A store does not answer, or asks for patience: what it was asked for may be asked again later."""


class Stat(NamedTuple):
    """``size`` in bytes, ``changed`` as Unix time."""

    size: int
    changed: float


class Parts(Protocol):
    """A large object that is brought in parts of ``size`` bytes, from several threads and in any order."""

    size: int

    def put(self, n: int, data: bytes, crc: int) -> None:
        """Bring part ``n``, counted from 0. Brought again it replaces the first. ``crc``: its CRC-32."""

    def finish(self) -> None:
        """The object is there, whole."""

    def abandon(self) -> None:
        """Forget what was brought."""


class Driver:
    """Objects below ``root``, by their names there. ``where``: its address for people.

    Every method may be called from any thread, also after a fork; a copy by pickle has a connection of its own. Each raises
    OSError, among them StoreAway and FileNotFoundError for an object that is not there, and MissingDriver. ``patience``: seconds
    for which a store that does not answer is asked again.
    """

    protocol = ""
    module = ""  # which fsspec's driver is in, and needs
    extra = ""  # of dethpc that installs it
    alters = ""  # characters of names that its server makes others of
    timeouts = (10.0, 60.0)  # seconds to connect, and between two bytes: a try that hangs is given up, and made again

    pause = 0.3  # seconds before the second try; it doubles with each

    def __init__(self, where: str, root: str, options: Dict[str, Any]) -> None:
        self.where, self.root, self._options = where, root.strip("/"), options
        self._made: Tuple[int, Any] = (0, None)

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_made": (0, None)}

    @property
    def fs(self) -> Any:
        """fsspec's file system, made when it is first used, once for each process."""
        pid, fs = self._made
        if fs is None or pid != os.getpid():
            fs = self._make()
            self._made = os.getpid(), fs
        return fs

    def get(self, name: str, start: int = 0, end: Optional[int] = None, *, patience: float = USUAL) -> bytes:
        """The bytes of an object from ``start`` to before ``end``: exactly so many."""

        def read() -> bytes:
            if end is None:
                return bytes(self.fs.cat_file(self.path(name)))
            content = bytes(self.fs.cat_file(self.path(name), start=start, end=end))
            if len(content) != end - start:
                raise OSError(errno.EIO, f"{len(content)} of {end - start} bytes of {name} came")
            return content

        return self.again(read, patience)

    def put(self, name: str, data: bytes, *, crc: Optional[int] = None, patience: float = USUAL) -> None:
        """``crc``: the CRC-32 of the data, where the caller knows it: a driver that sends one need not sum them once more."""
        self.again(lambda: self.fs.pipe_file(self.path(name), data), patience)

    def replace(self, name: str, data: bytes, *, patience: float = USUAL) -> None:
        """As ``put``, and readers find the old object or the new one, never a part."""
        self.put(name, data, patience=patience)

    def put_file(self, name: str, file: str, *, patience: float = USUAL) -> None:
        """A local file, in one call of the driver."""
        self.again(lambda: self.fs.put_file(file, self.path(name)), patience)

    def parts(self, name: str, size: int, *, patience: float = USUAL) -> Optional[Parts]:
        """For an object of ``size`` bytes; None where the driver has no parts."""
        return None

    def list(self, folder: str = "", *, patience: float = USUAL) -> Dict[str, Stat]:
        """All objects below ``folder``, by their names there."""
        base = self.path(folder).rstrip("/") + "/"

        def find() -> Dict[str, Stat]:
            try:
                listing = self.fs.find(base.rstrip("/"), detail=True)
            except FileNotFoundError:
                return {}
            named = {path.lstrip("/"): info for path, info in listing.items()}
            start = base.lstrip("/")
            return {p[len(start) :]: _stat(info) for p, info in named.items() if p.startswith(start) and p != start}

        return self.again(find, patience)

    def remove(self, names: Sequence[str], *, patience: float = USUAL) -> None:
        """Remove objects; those that are not there are removed already."""
        from concurrent.futures import ThreadPoolExecutor

        def one(name: str) -> None:
            try:
                self.again(lambda: self.fs.rm_file(self.path(name)), patience)
            except FileNotFoundError:
                pass

        with ThreadPoolExecutor(8) as pool:
            for _ in pool.map(one, names):
                pass

    def path(self, name: str) -> str:
        """How fsspec names it."""
        return f"{self.root}/{name}" if name else self.root

    def again(self, call: Callable[[], T], patience: float) -> T:
        """What ``call`` returns, called again while the store does not answer, after ever longer pauses."""
        import logging  # here: whoever keeps checkpoints in a directory waits for none of this
        import random

        begin, pause, warned = time.monotonic(), self.pause, False
        while True:
            try:
                return call()
            except Exception as error:
                os_error = _as_os_error(self.where, error)
                waited = time.monotonic() - begin
                if _is_for_good(error) or waited + pause > patience:
                    raise os_error from error
                if waited > _SAID_AFTER and not warned:
                    warned = True
                    logging.getLogger("dethpc.storage").warning(
                        "%s; it is tried again for %.0f s more", os_error, patience - waited
                    )
            time.sleep(pause * (0.5 + random.random()))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _make(self) -> Any:
        try:
            return self._file_system()
        except ImportError as error:
            raise MissingDriver(
                errno.ENOPKG,
                f"{self.where} needs {self.module}: pip install 'dethpc[{self.extra}]', or pip install {self.module} ({error})",
            ) from error
        except ValueError as error:
            raise OSError(errno.EINVAL, f"{self.where}: {_plain(error)}") from error

    def _file_system(self) -> Any:
        import fsspec

        return fsspec.filesystem(self.protocol, use_listings_cache=False, **self._options)


def _as_os_error(where: str, error: Exception) -> OSError:
    if isinstance(error, MissingDriver):
        return error
    message = f"{where}: {_plain(error)}"
    for lasting in _FOR_GOOD:
        if isinstance(error, lasting):
            return lasting(error.errno or errno.EIO, message)
    kind = OSError if _is_for_good(error) else StoreAway
    return kind(getattr(error, "errno", None) or errno.EIO, message)


def _is_for_good(error: BaseException) -> bool:
    """Whether it will be the same tomorrow: nothing there, not allowed, not understood."""
    if isinstance(error, (*_FOR_GOOD, MissingDriver, TypeError, AttributeError, NotImplementedError, UnicodeError)):
        return True
    if type(error).__name__ in _FOR_GOOD_BY_NAME:
        return True
    answer = getattr(error, "response", None)
    statuses = [getattr(where, name, None) for where in (error, answer) for name in ("status_code", "code", "status")]
    status = next((int(n) for n in statuses if isinstance(n, int) or (isinstance(n, str) and n.isdigit())), 0)
    return 400 <= status < 500 and status not in _TRY_LATER


def _plain(error: BaseException) -> str:
    """What went wrong on one line, without keys, signatures and passwords."""
    text = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
    lines = str(text).strip().splitlines() or [type(error).__name__]
    return hide_signatures(lines[0])[:300]


def _stat(info: Dict[str, Any]) -> Stat:
    from datetime import datetime, timezone

    from dethpc.domain.text.times import moment

    changed = next(
        (info[n] for n in ("LastModified", "mtime", "updated", "last_modified", "modificationTime") if info.get(n)), 0
    )
    if isinstance(changed, str):
        changed = moment(changed)
    if isinstance(changed, datetime):
        changed = (changed if changed.tzinfo else changed.replace(tzinfo=timezone.utc)).timestamp()
    return Stat(int(info.get("size") or 0), float(changed))
