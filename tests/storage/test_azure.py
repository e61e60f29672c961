"""The contract, by a container of Azurite."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from dethpc.errors import CheckpointError
from dethpc.storage import build
from tests.storage.contract import FILES, content_of, fill, stored
from tests.storage.objects import ObjectStoreContract
from tests.storage.servers import Azure, Server, azure_server

__all__ = ["azure_server"]


class TestAzure(ObjectStoreContract):
    @pytest.fixture
    def server(self, azure_server: Azure) -> Server:
        return azure_server


def key_of(server: Azure, container: str) -> dict[str, Any]:
    return {"account_url": f"{server.url}/{server.ACCOUNT}", "credential": server.KEY}


def signature_of(server: Azure, container: str) -> dict[str, Any]:
    from azure.storage.blob import ContainerSasPermissions, generate_container_sas

    until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    may = ContainerSasPermissions(read=True, write=True, delete=True, list=True, create=True)
    named = {"account_name": server.ACCOUNT, "account_key": server.KEY, "container_name": container}
    return {
        "account_url": f"{server.url}/{server.ACCOUNT}",
        "credential": generate_container_sas(**named, permission=may, expiry=until),
    }


def signature_in_the_url(server: Azure, container: str) -> dict[str, Any]:
    found = signature_of(server, container)
    return {"account_url": f"{found['account_url']}?{found['credential']}"}


@pytest.mark.parametrize("access", [key_of, signature_of, signature_in_the_url])
def test_an_account_is_named_by_its_url(azure_server: Azure, tmp_path: Path, access: Any) -> None:
    container = azure_server.section()["container"]
    section = {"type": "azure", "container": container, **access(azure_server, container)}
    store = build(section, disk=str(tmp_path / "disk"))
    with stored(store, "a1") as path:
        fill(path, {**FILES, "large": bytes(range(256)) * (72 << 10)})
    store.download("a1", tmp_path / "there")
    assert content_of(tmp_path / "there") == {**FILES, "large": bytes(range(256)) * (72 << 10)}
    assert store.delete("a1") == {} and not azure_server.objects(section)
    assert "sig" not in str(store) and azure_server.KEY not in str(store)


def test_a_name_that_azure_would_alter_is_refused_before_anything_is_sent(azure_server: Azure, tmp_path: Path) -> None:
    section = azure_server.section()
    store = build(section, disk=str(tmp_path / "disk"))
    (store.stage("a1") / "a\\b").write_bytes(b"1")
    with pytest.raises(CheckpointError, match="rename it"):
        store.publish("a1")
    assert not azure_server.objects(section)
