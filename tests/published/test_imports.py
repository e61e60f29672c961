"""Names that published code imports besides the training APIs."""

from __future__ import annotations

import importlib
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


def test_a_trial_class_may_be_annotated_with_the_context_of_all_kinds() -> None:
    from determined.pytorch import PyTorchTrialContext

    assert issubclass(PyTorchTrialContext, determined.TrialContext)
    config = determined.ExperimentConfig({"searcher": {"name": "single", "metric": "loss"}, "entrypoint": "a:B"})
    assert (config.get_searcher_metric(), config.get_entrypoint(), config.scheduling_unit()) == ("loss", "a:B", 100)


def test_a_module_that_is_not_here_says_so_as_an_attribute_too() -> None:
    with pytest.raises(AttributeError, match=r"no determined.gpu: .*get_cluster_info"):
        determined.gpu  # noqa: B018
    with pytest.raises(AttributeError, match=r"module 'dethpc' has no attribute 'of_nobody'"):
        determined.of_nobody  # noqa: B018
    assert not hasattr(determined.util, "of_nobody")
    with pytest.raises(ImportError, match="cannot import name 'of_nobody'"):
        from determined.util import of_nobody  # type: ignore[attr-defined]  # noqa: F401


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("determined.integrations.huggingface", "determined.transformers.DetCallback"),
        ("determined.constants", "get_cluster_info"),
        ("determined.common.storage.s3", "in determined.common.storage"),
        ("determined.exec.prep_container", "runs the entrypoint itself"),
    ],
)
def test_a_module_that_is_not_here_says_what_stands_in_its_place(module: str, words: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"dethpc has no {module.rpartition('.')[0]}.*{words}"):
        importlib.import_module(module)
    with pytest.raises(ModuleNotFoundError, match="No module named 'determined.of_nobody'"):
        importlib.import_module("determined.of_nobody")


def test_functions_of_util_that_published_trials_call() -> None:
    from determined.util import filter_duplicates, has_param, is_overridden

    class Parent:
        def one(self) -> None: ...

        def two(self) -> None: ...

    class Child(Parent):
        def one(self) -> None: ...

    assert (
        is_overridden(Child().one, Parent) and not is_overridden(Child().two, Parent) and not is_overridden(3, Parent)
    )
    assert has_param(lambda a, b: 0, "b") and has_param(lambda a, b: 0, "x", 1) and not has_param(lambda a: 0, "x", 1)
    assert filter_duplicates([3, 1, 3, 2, 2]) == {2, 3}
