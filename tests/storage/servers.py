"""Servers of object stores for tests, each started once for a session: moto for S3, gcp-storage-emulator, Azurite, and for HDFS a
server of our own (``webhdfs``)."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator

import pytest

from tests.storage.webhdfs import Cluster, NameNode
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent.parent

_NUMBERS = itertools.count()


class Server:
    """``url``: where it listens. ``section()`` is of a new place in it, below ``prefix``."""

    prefix = "some/where/"

    def __init__(self, url: str) -> None:
        self.url = url

    def section(self, **more: Any) -> Dict[str, Any]:
        raise NotImplementedError

    def objects(self, section: Dict[str, Any]) -> Dict[str, bytes]:
        """All that is below the place, behind the store's back."""
        raise NotImplementedError

    def put(self, section: Dict[str, Any], name: str, content: bytes) -> None:
        raise NotImplementedError

    def through(self, section: Dict[str, Any], url: str, environment: pytest.MonkeyPatch) -> Dict[str, Any]:
        """The section for the same place behind another address."""
        return {n: v.replace(self.url, url) if isinstance(v, str) else v for n, v in section.items()}


class S3(Server):
    def __init__(self, url: str) -> None:
        import boto3

        super().__init__(url)
        keys = {"aws_access_key_id": "AKIATEST", "aws_secret_access_key": "hush"}
        self.client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", **keys)

    def section(self, **more: Any) -> Dict[str, Any]:
        bucket = f"bucket-{next(_NUMBERS)}"
        self.client.create_bucket(Bucket=bucket)
        keys = {"access_key": "AKIATEST", "secret_key": "hush"}
        return {"type": "s3", "bucket": bucket, "prefix": "some/where", "endpoint_url": self.url, **keys, **more}

    def objects(self, section: Dict[str, Any]) -> Dict[str, bytes]:
        found = self.client.list_objects_v2(Bucket=section["bucket"], Prefix=self.prefix).get("Contents", [])
        return {
            one["Key"][len(self.prefix) :]: self.client.get_object(Bucket=section["bucket"], Key=one["Key"])[
                "Body"
            ].read()
            for one in found
        }

    def put(self, section: Dict[str, Any], name: str, content: bytes) -> None:
        self.client.put_object(Bucket=section["bucket"], Key=self.prefix + name, Body=content)


class GCS(Server):
    def section(self, **more: Any) -> Dict[str, Any]:
        bucket = f"bucket-{next(_NUMBERS)}"
        self._fs().mkdir(bucket)
        return {"type": "gcs", "bucket": bucket, "prefix": "some/where", **more}

    def objects(self, section: Dict[str, Any]) -> Dict[str, bytes]:
        start = f"{section['bucket']}/{self.prefix}"
        with contextlib.suppress(FileNotFoundError):
            return {name[len(start) :]: self._fs().cat_file(name) for name in self._fs().find(start)}
        return {}

    def put(self, section: Dict[str, Any], name: str, content: bytes) -> None:
        self._fs().pipe_file(f"{section['bucket']}/{self.prefix}{name}", content)

    def through(self, section: Dict[str, Any], url: str, environment: pytest.MonkeyPatch) -> Dict[str, Any]:
        environment.setenv("STORAGE_EMULATOR_HOST", url)
        return section

    def _fs(self) -> Any:
        from gcsfs.core import GCSFileSystem

        return GCSFileSystem(endpoint_url=self.url, token="anon", project="p", use_listings_cache=False)


class Azure(Server):
    ACCOUNT = "devstoreaccount1"
    KEY = (
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # Azurite's, for all
    )

    prefix = ""

    @property
    def connection_string(self) -> str:
        return f"AccountName={self.ACCOUNT};AccountKey={self.KEY};BlobEndpoint={self.url}/{self.ACCOUNT};"

    def section(self, **more: Any) -> Dict[str, Any]:
        container = f"container-{next(_NUMBERS)}"
        self._service().create_container(container)
        return {"type": "azure", "container": container, "connection_string": self.connection_string, **more}

    def objects(self, section: Dict[str, Any]) -> Dict[str, bytes]:
        container = self._service().get_container_client(section["container"])
        return {name: container.download_blob(name).readall() for name in container.list_blob_names()}

    def put(self, section: Dict[str, Any], name: str, content: bytes) -> None:
        self._service().get_container_client(section["container"]).upload_blob(name, content, overwrite=True)

    def _service(self) -> Any:
        from azure.storage.blob import BlobServiceClient

        return BlobServiceClient.from_connection_string(self.connection_string)


class HDFS(Server):
    def __init__(self, node: NameNode) -> None:
        super().__init__(node.url)
        self.node = node

    def section(self, **more: Any) -> Dict[str, Any]:
        return {"type": "hdfs", "hdfs_url": self.url, "hdfs_path": f"/place-{next(_NUMBERS)}", "user": "alice", **more}

    def objects(self, section: Dict[str, Any]) -> Dict[str, bytes]:
        start = f"{section['hdfs_path']}/"
        return {n[len(start) :]: content for n, (content, _) in self.node.cluster.files.items() if n.startswith(start)}

    def put(self, section: Dict[str, Any], name: str, content: bytes) -> None:
        self.node.cluster.files[f"{section['hdfs_path']}/{name}"] = content, 1.0


@contextlib.contextmanager
def s3() -> Iterator[S3]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield S3(f"http://{host}:{port}")
    finally:
        server.stop()


@contextlib.contextmanager
def gcs() -> Iterator[GCS]:
    from gcp_storage_emulator.server import create_server

    server = create_server("127.0.0.1", 0, in_memory=True)
    server.start()
    try:
        yield GCS(f"http://127.0.0.1:{server._api._httpd.server_port}")
    finally:
        server.stop()


@contextlib.contextmanager
def azure() -> Iterator[Azure]:
    got = subprocess.run([ROOT / "scripts/get-azurite"], capture_output=True, text=True, timeout=600, check=False)
    if got.returncode != 0:
        pytest.skip(f"Azurite cannot be installed: {got.stderr.strip()}")
    with tempfile.TemporaryDirectory() as folder:
        command = [f"{got.stdout.strip()}/node_modules/.bin/azurite-blob", "--blobPort", "0"]
        options = ["--skipApiVersionCheck", "--disableTelemetry", "--silent", "--inMemoryPersistence"]
        with open(f"{folder}/log", "w") as log:
            process = subprocess.Popen([*command, *options], cwd=folder, stdout=log, stderr=log)
        try:
            wait_until(lambda: process.poll() is not None or "successfully listen" in Path(folder, "log").read_text())
            said = Path(folder, "log").read_text()
            yield Azure("http://" + said.partition("http://")[2].split()[0])
        finally:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def hdfs() -> Iterator[HDFS]:
    node = NameNode(Cluster())
    try:
        yield HDFS(node)
    finally:
        node.end()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3]:
    with s3() as server:
        yield server


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[GCS]:
    with gcs() as server, pytest.MonkeyPatch.context() as environment:
        environment.setenv("STORAGE_EMULATOR_HOST", server.url)
        environment.setenv("GCSFS_DEFAULT_PROJECT", "p")
        yield server


@pytest.fixture(scope="session")
def azure_server() -> Iterator[Azure]:
    with azure() as server:
        yield server


@pytest.fixture(scope="session")
def hdfs_server() -> Iterator[HDFS]:
    with hdfs() as server:
        yield server
