"""Hadoop's file system by WebHDFS: ``checkpoint_storage.type: hdfs``, by fsspec's own driver, which needs requests."""

from __future__ import annotations

import errno
import getpass
import os
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, TypeVar
from urllib.parse import urlsplit

from dethpc.domain.secrets import hide_passwords
from dethpc.storage.driver import USUAL, Driver, Stat

T = TypeVar("T")

_SILENT = {"ConnectionError", "Timeout"}  # of requests


def driver(section: Mapping[str, Any]) -> Driver:
    """``hdfs_url``: of one namenode, or of several with ``;`` between them, of which one is active."""
    urls = [url.strip().rstrip("/") for url in str(section["hdfs_url"]).split(";") if url.strip()]
    root = str(section.get("hdfs_path") or "/").strip("/")
    return HDFSDriver(urls, root, str(section.get("user") or getpass.getuser()))


class HDFSDriver(Driver):
    """One that is asked and does not answer, or is on standby, leaves its turn to the next namenode."""

    protocol, module, extra = "webhdfs", "requests", "hdfs"

    def __init__(self, urls: List[str], root: str, user: str) -> None:
        super().__init__(f"{';'.join(map(hide_passwords, urls))}/{root}", root, {})
        self._urls, self._user, self._active = urls, user, 0

    @property
    def fs(self) -> Any:
        """Of the namenode that answered last."""
        pid, filesystems = self._made
        if filesystems is None or pid != os.getpid():
            filesystems = {}
            self._made = os.getpid(), filesystems
        active = self._active
        if active not in filesystems:
            parts = urlsplit(self._urls[active])
            secured = parts.scheme == "https"
            self._options = {
                "host": parts.hostname,
                "port": parts.port or (9871 if secured else 9870),
                "use_https": secured,
                "user": parts.username or self._user,
                **({"password": parts.password} if parts.password else {}),
            }
            filesystems[active] = self._make()
        return filesystems[active]

    def again(self, call: Callable[[], T], patience: float) -> T:
        def of_any() -> T:
            for _ in self._urls[1:]:
                try:
                    return call()
                except Exception as error:
                    if not _is_of_this_one(error):
                        raise
                    self._active = (self._active + 1) % len(self._urls)
            return call()

        return super().again(of_any, patience)

    def get(self, name: str, start: int = 0, end: Optional[int] = None, *, patience: float = USUAL) -> bytes:
        """One request, where fsspec's file asks for the size first."""
        length = {} if end is None else {"length": end - start}

        def read() -> bytes:
            content = self.fs._call("OPEN", path=self.path(name), offset=start, **length).content
            if end is not None and len(content) != end - start:
                raise OSError(errno.EIO, f"{len(content)} of {end - start} bytes of {name} came")
            return bytes(content)

        return self.again(read, patience)

    def replace(self, name: str, data: bytes, *, patience: float = USUAL) -> None:
        """By another name first: a file that is being written can be read here."""
        staged = f"{name}.{os.urandom(4).hex()}.tmp"
        self.put(staged, data, patience=patience)

        def rename() -> None:
            fs, new, old = self.fs, self.path(name), self.path(staged)
            if not fs._call("RENAME", method="put", path=old, destination=new).json().get("boolean"):
                if not fs.exists(old):
                    return  # an answer to the first try was lost
                fs.rm(new)
                raise OSError(errno.EAGAIN, f"{name} is there already")

        self.again(rename, max(patience, 1.0))

    def list(self, folder: str = "", *, patience: float = USUAL) -> Dict[str, Stat]:
        """fsspec's ``find`` passes over what cannot be read."""
        files: Dict[str, Stat] = {}
        folders = [""]
        while folders:
            inside = folders.pop()
            for info in self._listed("/".join(filter(None, (folder, inside))), patience):
                name = "/".join(filter(None, (inside, info["pathSuffix"])))
                if info["type"] == "DIRECTORY":
                    folders.append(name)
                else:
                    files[name] = Stat(int(info["length"]), info["modificationTime"] / 1000)
        return files

    def remove(self, names: Sequence[str], *, patience: float = USUAL) -> None:
        """With the folders that they leave empty."""
        super().remove(names, patience=patience)
        above = {name[:at] for name in names for at, letter in enumerate(name) if letter == "/"}
        for folder in sorted(above, key=len, reverse=True):
            if not self._listed(folder, patience):
                self.again(lambda: self.fs.rm(self.path(folder)), patience)  # noqa: B023

    def path(self, name: str) -> str:
        return "/" + super().path(name).lstrip("/")

    def _listed(self, folder: str, patience: float) -> List[Dict[str, Any]]:
        try:
            answer = self.again(lambda: self.fs._call("LISTSTATUS", path=self.path(folder)), patience).json()
        except FileNotFoundError:
            return []
        statuses: List[Dict[str, Any]] = answer["FileStatuses"]["FileStatus"]
        return statuses

    def _make(self) -> Any:
        fs = super()._make()
        send = fs.session.send
        fs.session.send = lambda request, **options: send(request, **{**options, "timeout": self.timeouts})
        return fs


def _is_of_this_one(error: Exception) -> bool:
    """Whether another namenode may answer where this one does not."""
    silent = bool(_SILENT & {kind.__name__ for kind in type(error).__mro__})
    return silent or (isinstance(error, RuntimeError) and "standby" in str(error).lower())
