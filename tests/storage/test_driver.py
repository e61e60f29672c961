"""What every driver of an object store does with its failures."""

from __future__ import annotations

import pytest

from dethpc.storage.driver import NO_PATIENCE, Driver


def test_an_error_shows_no_signature_and_no_key() -> None:
    def fail() -> None:
        raise PermissionError("no access to /k?X-Amz-Signature=hush with AccountKey=hush; of https://a:hush@b")

    with pytest.raises(PermissionError) as caught:
        Driver("s3://bucket", "bucket", {}).again(fail, NO_PATIENCE)
    assert str(caught.value).startswith("[Errno 5] s3://bucket: no access to /k?X-Amz-Signature=")
    assert "hush" not in str(caught.value)
