"""The contract, by a folder of the WebHDFS server in ``webhdfs``."""

from __future__ import annotations

from pathlib import Path

import pytest

from dethpc.storage import build
from tests.storage.objects import ObjectStoreContract
from tests.storage.servers import HDFS, Server, hdfs_server
from tests.storage.webhdfs import NameNode

__all__ = ["hdfs_server"]


class TestHDFS(ObjectStoreContract):
    @pytest.fixture
    def server(self, hdfs_server: HDFS) -> Server:
        return hdfs_server


def test_the_namenode_that_is_active_answers(hdfs_server: HDFS, tmp_path: Path) -> None:
    standby, gone = NameNode(hdfs_server.node.cluster), NameNode(hdfs_server.node.cluster)
    standby.standby = True
    gone.end()
    section = hdfs_server.section()
    urls = f"{gone.url};{standby.url};{hdfs_server.url}"
    store = build({**section, "hdfs_url": urls}, disk=str(tmp_path))
    try:
        (store.stage("a1") / "state").write_bytes(b"1")
        store.publish("a1")
    finally:
        standby.end()
    assert store.files("a1") == {"state": 1}
    assert hdfs_server.node.cluster.users[-1] == "alice"
