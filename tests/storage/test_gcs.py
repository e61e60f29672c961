"""The contract, by a bucket of gcp-storage-emulator."""

from __future__ import annotations

import pytest

from tests.storage.objects import ObjectStoreContract
from tests.storage.servers import GCS, Server, gcs_server

__all__ = ["gcs_server"]


class TestGCS(ObjectStoreContract):
    @pytest.fixture
    def server(self, gcs_server: GCS) -> Server:
        return gcs_server
