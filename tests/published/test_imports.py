"""Names that published code imports besides the training APIs."""

from __future__ import annotations

import importlib.util
import uuid

import pytest

import determined
from determined import searcher
from determined.horovod import hvd
from determined.util import download_gcs_blob_with_backoff, merge_dicts


def test_configurations_are_merged() -> None:
    base = {"a": {"b": 1, "c": 2}, "d": {"x": 1}}
    assert merge_dicts(base, {"a": {"b": 3}, "d": 4}) == {"a": {"b": 3, "c": 2}, "d": 4}
    assert base == {"a": {"b": 1, "c": 2}, "d": {"x": 1}}
    assert determined.util.merge_dicts is merge_dicts


def test_a_download_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Blob:
        tries = 0

        def download_as_string(self) -> bytes:
            self.tries += 1
            if self.tries < 3:
                raise ConnectionError
            return b"data"

    assert download_gcs_blob_with_backoff(Blob(), max_backoff=0) == b"data"
    with pytest.raises(ConnectionError):
        download_gcs_blob_with_backoff(Blob(), n_retries=2, max_backoff=0)


def test_a_search_method_of_the_users_own_has_its_names() -> None:
    class Mine(searcher.SearchMethod):
        pass

    assert issubclass(searcher.Create, searcher.Operation)
    assert searcher.ExitedReason.INVALID_HP and searcher.LocalSearchRunner and searcher.SearcherState
    with pytest.raises(AttributeError):
        searcher.NoSuchName  # noqa: B018


def test_horovod_is_imported_when_it_is_used() -> None:
    hvd.require_horovod_type("torch", "a test")
    if importlib.util.find_spec("horovod") is None:
        with pytest.raises(ImportError):
            hvd.size  # noqa: B018
    else:
        assert callable(hvd.allreduce)


def test_a_trial_of_a_search_of_ones_own_begins_anew() -> None:
    made = searcher.Create(request_id=uuid.uuid4(), hparams={"lr": 1}, checkpoint=None)
    assert made.to_wire()["createTrial"]["hyperparams"] == {"lr": 1}
    with pytest.raises(ValueError, match="starts from scratch"):
        searcher.Create(request_id=uuid.uuid4(), hparams={}, checkpoint="a-checkpoint")
