"""Variables that an experiment brings for the drivers of its storage."""

from __future__ import annotations

import os

import pytest

from dethpc.storage.variables import given, of_stores


def test_what_tells_drivers_of_keys_and_certificates_is_taken_and_nothing_else() -> None:
    wanted = {"AWS_ACCESS_KEY_ID": "a", "AWS_CA_BUNDLE": "b", "GOOGLE_APPLICATION_CREDENTIALS": "c", "https_proxy": "d"}
    assert (
        of_stores({**wanted, "PATH": "/bin", "LD_PRELOAD": "x.so", "PYTHONPATH": "/p", "DETHPC_HOME": "/h"}) == wanted
    )


def test_this_process_has_them_for_a_while_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "mine")
    monkeypatch.delenv("AWS_REGION", raising=False)
    with pytest.raises(OSError), given({"AWS_PROFILE": "theirs", "AWS_REGION": "eu"}):
        assert (os.environ["AWS_PROFILE"], os.environ["AWS_REGION"]) == ("theirs", "eu")
        raise OSError
    assert os.environ["AWS_PROFILE"] == "mine" and "AWS_REGION" not in os.environ
