"""A dataset in a bucket: made on one node, fetched by the others; damage and a bucket that is away stop no training."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import pytest

from dethpc.data_layer import Cache, Key, place
from dethpc.storage.driver import Driver
from tests.data_layer.conftest import Making
from tests.data_layer.test_cache import data_of
from tests.storage.servers import GCS, S3, Server, gcs_server, s3_server

__all__ = ["gcs_server", "s3_server"]

KEY = Key.of("numbers", "v1")


@pytest.fixture(params=["s3", pytest.param("gcs", marks=pytest.mark.everything)])
def server(request: pytest.FixtureRequest) -> Server:
    found: S3 | GCS = request.getfixturevalue(f"{request.param}_server")
    return found


class Bucket:
    """``node(n)``: the cache of node ``n``, and its folder."""

    def __init__(self, server: Server, tmp_path: Path) -> None:
        self.server, self._tmp_path = server, tmp_path
        self.storage = server.section()
        self.section: Dict[str, Any] = {n: v for n, v in self.storage.items() if n != "prefix"}
        self.section["bucket_directory_path"] = "some/where"

    def node(self, n: int) -> tuple[Cache, Path]:
        found = place({**self.section, "local_cache_host_path": str(self._tmp_path / f"node{n}")})
        return Cache(found), found.folder

    def objects(self) -> Dict[str, bytes]:
        return self.server.objects(self.storage)


@pytest.fixture
def bucket(server: Server, tmp_path: Path) -> Bucket:
    return Bucket(server, tmp_path)


def test_what_one_node_made_another_fetches(bucket: Bucket) -> None:
    making = Making(*range(100))
    for n in (1, 2, 1):
        assert list(bucket.node(n)[0].records(KEY, making)) == list(range(100))
    assert making.calls == 1
    assert sorted(name.split("/")[-1] for name in bucket.objects()) == ["about.json", "data.mdb"]


def test_damage_on_a_node_is_fetched_again(bucket: Bucket) -> None:
    making = Making(*range(100))
    cache, folder = bucket.node(1)
    cache.records(KEY, making)
    data_of(folder).write_bytes(b"\1" * data_of(folder).stat().st_size)
    assert list(cache.records(KEY, making)) == list(range(100)) and making.calls == 1


@pytest.mark.parametrize("what", ["about.json", "data.mdb"])
def test_damage_in_the_bucket_is_found_and_replaced(bucket: Bucket, what: str) -> None:
    making = Making(*range(100))
    bucket.node(1)[0].records(KEY, making)
    (name,) = (name for name in bucket.objects() if name.endswith(what))
    text = bytearray(bucket.objects()[name])
    text[len(text) // 2] ^= 255
    bucket.server.put(bucket.storage, name, bytes(text))
    making.records = (8, 9)  # nothing of what is damaged may be among it
    assert list(bucket.node(2)[0].records(KEY, making)) == [8, 9] and making.calls == 2
    assert list(bucket.node(3)[0].records(KEY, making)) == [8, 9] and making.calls == 2
    if what == "data.mdb":
        assert len(bucket.objects()) == 2, "what was damaged is gone"


def test_a_bucket_that_is_away_stops_nothing_and_gets_it_later(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: Any, **__: Any) -> Any:
        raise OSError("no answer")

    making = Making(*range(100))
    with monkeypatch.context() as broken:
        broken.setattr(Driver, "again", away)
        assert list(bucket.node(1)[0].records(KEY, making)) == list(range(100))
    assert "is made here: no answer" in caplog.text and "is not kept in" in caplog.text
    assert bucket.objects() == {}
    bucket.node(1)[0].records(KEY, making)
    bucket.node(2)[0].records(KEY, making)
    assert making.calls == 1
