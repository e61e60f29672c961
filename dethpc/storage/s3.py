"""Amazon S3 and what speaks its language, such as MinIO and Ceph: ``checkpoint_storage.type: s3``, by s3fs."""

from __future__ import annotations

import base64
from typing import Any, Dict, List, Mapping, Optional, Sequence

from dethpc.domain.secrets import hide_passwords
from dethpc.storage.driver import NO_PATIENCE, USUAL, Driver, Parts, Stat

_PART = 16 << 20  # bytes; S3 takes 5 MiB to 5 GiB
_MOST_PARTS = 10_000


def driver(section: Mapping[str, Any]) -> Driver:
    """Without keys, those are used that the environment has: variables, ``~/.aws``, the role of the machine."""
    prefix = str(section.get("prefix") or "").strip("/")
    root = f"{section['bucket']}/{prefix}".rstrip("/")
    endpoint = section.get("endpoint_url")
    at = f" at {hide_passwords(str(endpoint))}" if endpoint else ""
    s3: Dict[str, Any] = {}
    if section.get("path_style") is not None:
        s3["addressing_style"] = "path" if section["path_style"] else "virtual"
    elif endpoint:
        s3["addressing_style"] = "auto"
    options = {
        "key": section.get("access_key"),
        "secret": section.get("secret_key"),
        "endpoint_url": endpoint,
        "config_kwargs": {"s3": s3},
    }
    return S3Driver(f"s3://{root}{at}", root, options)


class S3Driver(Driver):
    protocol, module, extra = "s3", "s3fs", "s3"

    def put(self, name: str, data: bytes, *, crc: Optional[int] = None, patience: float = USUAL) -> None:
        self.call("put_object", patience, Key=self._key(name), Body=data, **self.summed(crc))

    def parts(self, name: str, size: int, *, patience: float = USUAL) -> Optional[Parts]:
        return _S3Parts(self, name, size, patience)

    def list(self, folder: str = "", *, patience: float = USUAL) -> Dict[str, Stat]:
        """A thousand with each request; fsspec's own takes three to say that nothing is there."""
        prefix = self._key(folder).strip("/")
        prefix = f"{prefix}/" if prefix else ""
        stats: Dict[str, Stat] = {}
        on: Dict[str, str] = {}
        while True:
            try:
                answer = self.call("list_objects_v2", patience, Prefix=prefix, **on)
            except FileNotFoundError:
                return {}
            for one in answer.get("Contents") or ():
                name = one["Key"][len(prefix) :]
                if name and not name.endswith("/"):
                    stats[name] = Stat(int(one["Size"]), one["LastModified"].timestamp())
            if not answer.get("IsTruncated"):
                return stats
            on = {"ContinuationToken": answer["NextContinuationToken"]}

    def remove(self, names: Sequence[str], *, patience: float = USUAL) -> None:
        """A thousand with each request."""
        for at in range(0, len(names), 1000):
            some = [{"Key": self._key(name)} for name in names[at : at + 1000]]
            answer = self.call("delete_objects", patience, Delete={"Objects": some, "Quiet": True})
            if errors := answer.get("Errors"):
                raise OSError(f"{self.where}: {errors[0].get('Key')} cannot be removed: {errors[0].get('Message')}")

    def call(self, operation: str, patience: float, **arguments: Any) -> Any:
        bucket = self.root.partition("/")[0]
        return self.again(lambda: self.fs.call_s3(operation, Bucket=bucket, **arguments), patience)

    def summed(self, crc: Optional[int]) -> Dict[str, str]:
        """What a request says of its content's checksum, which botocore would make itself: nothing where it is told not to, for
        servers that take none."""
        client = self.again(lambda: self.fs.s3, NO_PATIENCE)
        if crc is None or getattr(client.meta.config, "request_checksum_calculation", "") != "when_supported":
            return {}
        return {"ChecksumAlgorithm": "CRC32", "ChecksumCRC32": base64.b64encode(crc.to_bytes(4, "big")).decode()}

    def _key(self, name: str) -> str:
        return self.path(name).partition("/")[2]

    def _file_system(self) -> Any:
        """Which tries nothing again itself, and reads nothing in parts (it asks for the size before that): both are done here."""
        connect, read = self.timeouts
        self._options["config_kwargs"].update(connect_timeout=connect, read_timeout=read, retries={"max_attempts": 0})
        fs = super()._file_system()
        fs.retries, fs.max_concurrency = 1, 1
        return fs


class _S3Parts:
    def __init__(self, driver: S3Driver, name: str, size: int, patience: float) -> None:
        self._driver, self._patience = driver, patience
        self._named = {"Key": driver._key(name)}
        self.size = max(_PART, -(-size // _MOST_PARTS))
        self._tags: Dict[int, str] = {}
        self._named["UploadId"] = self._call("create_multipart_upload")["UploadId"]

    def put(self, n: int, data: bytes, crc: int) -> None:
        summed = self._driver.summed(crc)
        self._tags[n] = self._call("upload_part", PartNumber=n + 1, Body=data, **summed)["ETag"]

    def finish(self) -> None:
        parts: List[Dict[str, Any]] = [{"PartNumber": n + 1, "ETag": tag} for n, tag in sorted(self._tags.items())]
        self._call("complete_multipart_upload", MultipartUpload={"Parts": parts})

    def abandon(self) -> None:
        try:
            self._driver.call("abort_multipart_upload", 0.0, **self._named)
        except OSError:
            pass  # a rule of the bucket removes what is left (docs/config.md)

    def _call(self, operation: str, **arguments: Any) -> Any:
        return self._driver.call(operation, self._patience, **self._named, **arguments)
