"""Azure Blob Storage: ``checkpoint_storage.type: azure``, by adlfs."""

from __future__ import annotations

import base64
import contextlib
import errno
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Awaitable, Callable, Dict, List, Mapping, Optional, Sequence, TypeVar
from urllib.parse import urlsplit

from dethpc.storage.driver import USUAL, Driver, Parts, Stat

T = TypeVar("T")

_PART = 16 << 20  # bytes; Azure takes up to 4000 MiB
_MOST_PARTS = 50_000


def driver(section: Mapping[str, Any]) -> Driver:
    """By a ``connection_string``, or an ``account_url`` with a ``credential``: a key, or a signature that grants access. Without
    one Azure's default credentials are used, as by Determined."""
    container = str(section["container"]).strip("/")
    text, url = str(section.get("connection_string") or ""), urlsplit(str(section.get("account_url") or ""))
    options: Dict[str, Any] = {}
    if text:
        parts = dict(part.partition("=")[::2] for part in text.split(";"))
        account = parts.get("AccountName") or (urlsplit(parts.get("BlobEndpoint", "")).hostname or "").partition(".")[0]
        options["connection_string"] = text
    else:
        local = url.path.strip("/")  # emulators have the account's name there
        account = local or (url.hostname or "").partition(".")[0]
        key = url.query or str(section.get("credential") or "").lstrip("?")
        endpoint = f"BlobEndpoint={url.scheme}://{url.netloc}{url.path.rstrip('/')};AccountName={account}"
        if "sig=" in key:
            options["connection_string"] = f"{endpoint};SharedAccessSignature={key}"
        elif key:
            options["connection_string"] = f"{endpoint};AccountKey={key}"
        else:
            options.update(account_name=account, account_host=url.netloc, anon=False)
    return AzureDriver(f"azure://{account}/{container}", container, options)


class AzureDriver(Driver):
    protocol, module, extra = "abfs", "adlfs", "azure"
    alters = "\\"

    def _file_system(self) -> Any:
        connect, read = self.timeouts
        fs = super()._file_system()
        transport = getattr(getattr(fs.service_client, "_pipeline", None), "_transport", None)
        if transport is not None:
            transport.connection_config.timeout, transport.connection_config.read_timeout = connect, read
        policy = getattr(getattr(fs.service_client, "_config", None), "retry_policy", None)
        if policy is not None:
            policy.total_retries = (
                0  # trying again is done here: Azure's client waits for 15 s and more between two tries
            )
        return fs

    def get(self, name: str, start: int = 0, end: Optional[int] = None, *, patience: float = USUAL) -> bytes:
        async def read(blob: Any) -> bytes:
            length = None if end is None else end - start
            stretch = {"offset": start, "length": length} if start or end is not None else {}  # what is empty has none
            content = bytes(await (await blob.download_blob(**stretch)).readall())
            if length is not None and len(content) != length:
                raise OSError(errno.EIO, f"{len(content)} of {length} bytes of {name} came")
            return content

        return b"" if start == end else self.of_blob(name, read, patience)

    def put(self, name: str, data: bytes, *, crc: Optional[int] = None, patience: float = USUAL) -> None:
        self.of_blob(name, lambda blob: blob.upload_blob(data, overwrite=True), patience)

    def list(self, folder: str = "", *, patience: float = USUAL) -> Dict[str, Stat]:
        prefix = f"{folder}/" if folder else ""

        async def stats(container: Any) -> Dict[str, Stat]:
            blobs = container.list_blobs(name_starts_with=prefix)
            return {
                one.name[len(prefix) :]: Stat(int(one.size), one.last_modified.timestamp())
                async for one in blobs
                if one.name != prefix
            }

        def ask() -> Dict[str, Stat]:
            return self._request(lambda service: service.get_container_client(self.root), stats)

        try:
            return self.again(ask, patience)
        except FileNotFoundError:
            return {}

    def remove(self, names: Sequence[str], *, patience: float = USUAL) -> None:
        def one(name: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                self.of_blob(name, lambda blob: blob.delete_blob(), patience)

        with ThreadPoolExecutor(8) as pool:
            for _ in pool.map(one, names):
                pass

    def parts(self, name: str, size: int, *, patience: float = USUAL) -> Optional[Parts]:
        return _AzureParts(self, name, size, patience)

    def of_blob(self, name: str, call: Callable[[Any], Awaitable[T]], patience: float) -> T:
        """What ``call`` returns of the client of an object, which adlfs would look for by the name as a URL: without what is behind
        a ``#`` or a ``?``."""
        return self.again(lambda: self._request(lambda s: s.get_blob_client(self.root, name), call), patience)

    def _request(self, client: Callable[[Any], Any], call: Callable[[Any], Awaitable[T]]) -> T:
        from azure.core.exceptions import ResourceNotFoundError
        from fsspec.asyn import sync

        fs = self.fs

        async def request() -> T:
            async with client(fs.service_client) as opened:
                return await call(opened)

        try:
            result: T = sync(fs.loop, request)
            return result
        except ResourceNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, str(error)) from error


class _AzureParts:
    """Blocks, of which a list is committed. Those that never are, Azure forgets within a week."""

    def __init__(self, driver: AzureDriver, name: str, size: int, patience: float) -> None:
        self._driver, self._name, self._patience = driver, name, patience
        self.size = max(_PART, -(-size // _MOST_PARTS))
        self._ids: List[str] = [_id(n) for n in range(-(-size // self.size))]

    def put(self, n: int, data: bytes, crc: int) -> None:
        self._ask(lambda blob: blob.stage_block(block_id=self._ids[n], data=data))

    def finish(self) -> None:
        from azure.storage.blob import BlobBlock

        self._ask(lambda blob: blob.commit_block_list([BlobBlock(block_id=one) for one in self._ids]))

    def abandon(self) -> None:
        pass

    def _ask(self, call: Callable[[Any], Awaitable[Any]]) -> None:
        self._driver.of_blob(self._name, call, self._patience)


def _id(n: int) -> str:
    return base64.b64encode(f"{n:08d}".encode()).decode()
