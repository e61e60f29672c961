"""Hyperparameters from Optuna's samplers."""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import pytest

from dethpc.config.experiment import ExperimentConfig
from dethpc.errors import Refused
from dethpc.searcher.base import Create, Exit, Note, Searcher
from dethpc.searcher.draws import try_out
from tests.searcher.sections import searcher as made

SPACE: dict[str, Any] = {
    "x": {"type": "double", "minval": -5.0, "maxval": 5.0},
    "net": {"lr": {"type": "log", "minval": -4, "maxval": 0, "base": 10}, "depth": {"type": "int", "minval": 1, "maxval": 9}},
    "kind": {"type": "categorical", "vals": ["a", ["b", 1], {"c": 2}]},
    "batch": 32,
}  # fmt: skip


def searcher(**settings: Any) -> Searcher:
    defaults = {"name": "random", "metric": "loss", "max_trials": 40, "max_concurrent_trials": 4, "sampler": "tpe"}
    return made({**defaults, **settings}, SPACE, 3)


def loss(hparams: dict[str, Any]) -> float:
    return float((hparams["x"] - 2) ** 2 + abs(hparams["net"]["depth"] - 4))


def played(crash: float, **settings: Any) -> list[dict[str, Any]]:
    """Each trial validates twice and ends. Now and then nothing is left but the records."""
    rng, search = random.Random(1), searcher(**settings)
    made: list[Create] = []
    notes: list[Note] = []
    ends: dict[int, float] = {}

    def act(actions: Any) -> None:
        for action in actions:
            if isinstance(action, Create):
                made.append(action)
                search.created(action.index, action.hparams, action.search)
            elif isinstance(action, Note):
                notes.append(action)
                search.noted(action.index, action.kind, action.data)

    act(search.start())
    while len(ends) < len(made):
        index = min(set(range(len(made))) - set(ends))
        value = loss(made[index].hparams)
        for length in (4, 16):
            act(search.validated(index, length, value + 1 / length))
        ends[index] = value
        search.closed(index, Exit.COMPLETED, value)
        if rng.random() < crash:
            search = searcher(**settings)
            for create in made:
                search.created(create.index, create.hparams, create.search)
            for note in notes:
                search.noted(note.index, note.kind, note.data)
            for ended in sorted(ends):
                search.closed(ended, Exit.COMPLETED, ends[ended])
        act(search.exited(index, Exit.COMPLETED))
    return [create.hparams for create in made]


class TestWithOptuna:
    @pytest.fixture(autouse=True)
    def _optuna(self) -> None:
        pytest.importorskip("optuna")

    def test_it_learns_from_trials_that_ended(self) -> None:
        hparams = played(0.0)
        assert len(hparams) == 40
        early, late = (sum(map(loss, part)) / 10 for part in (hparams[:10], hparams[-10:]))
        assert late < early / 2

    def test_draws_lie_in_their_ranges_and_nest(self) -> None:
        for hparams in played(0.0):
            assert -5 <= hparams["x"] <= 5
            assert 1e-4 <= hparams["net"]["lr"] <= 1 and hparams["net"]["depth"] in range(1, 10)
            assert hparams["kind"] in ("a", ["b", 1], {"c": 2}) and hparams["batch"] == 32

    @pytest.mark.parametrize(
        "settings",
        [
            {},
            {"sampler": {"name": "tpe", "multivariate": True, "n_startup_trials": 5}},
            {"name": "adaptive_asha", "time_metric": "batches", "max_time": 16},
        ],
    )
    @pytest.mark.slow
    def test_crashes_do_not_alter_what_is_drawn(self, settings: dict[str, Any]) -> None:
        assert played(0.3, **settings) == played(0.0, **settings)

    def test_asking_again_gives_the_same(self) -> None:
        search = searcher()
        assert search.start() == search.start()
        assert search.start() == searcher().start()

    def test_an_unknown_sampler_or_option_is_refused(self) -> None:
        with pytest.raises(Refused, match="no sampler 'tep'; it has .*tpe"):
            searcher(sampler="tep").start()
        with pytest.raises(Refused, match="TPESampler does not take"):
            searcher(sampler={"name": "tpe", "speed": 9}).start()


def test_without_optuna_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(Refused, match=r"pip install 'dethpc\[optuna\]'"):
        searcher().start()


class TestTryOut:
    """What a sampler would say only after its first trials is said at once."""

    @pytest.fixture(autouse=True)
    def _optuna(self) -> None:
        pytest.importorskip("optuna")

    @staticmethod
    def try_out(sampler: Any) -> None:
        stored = {"entrypoint": "x", "searcher": {"metric": "loss", "name": "single"}, "hyperparameters": SPACE}
        try_out(sampler, ExperimentConfig.from_json(stored).space)

    @pytest.mark.parametrize(
        "sampler", ["tpe", "random", {"name": "tpe", "multivariate": True, "n_startup_trials": 500}]
    )
    def test_a_sampler_that_works_is_accepted(self, sampler: Any) -> None:
        self.try_out(sampler)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"n_startup_trials": "ten"}, r"sampler\.n_startup_trials: 'ten' is a str; TPESampler takes int"),
            ({"n_ei_candidates": 2.5}, r"sampler\.n_ei_candidates: 2\.5 is a float"),
            ({"multivariate": "no"}, r"sampler\.multivariate: 'no' is a str; TPESampler takes bool"),
            ({"gamma": 3, "n_ei_candidates": 12}, r"sampler\.gamma: TPESampler cannot work with 3"),
        ],
    )
    def test_an_option_of_a_wrong_type_is_named(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(Refused, match=message):
            self.try_out({"name": "tpe", **options})

    def test_a_missing_package_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "cmaes", None)
        with pytest.raises(Refused, match="CmaEsSampler needs the package cmaes.*pip install cmaes"):
            self.try_out("cmaes")

    def test_a_space_that_is_seen_whole_is_drawn_from_again(self) -> None:
        section = {
            "name": "random",
            "metric": "loss",
            "max_trials": 6,
            "max_concurrent_trials": 1,
            "sampler": "bruteforce",
        }
        search = made(section, {"x": {"type": "int", "minval": 1, "maxval": 2}}, 3)
        drawn = []
        for index in range(6):
            (create,) = search.exited(index - 1, Exit.COMPLETED) if index else search.start()
            assert isinstance(create, Create)
            drawn.append(create.hparams["x"])
            search.created(index, create.hparams, create.search)
            search.closed(index, Exit.COMPLETED, 0.5)
        assert set(drawn[:2]) == {1, 2} == set(drawn)

    def test_values_that_look_equal_are_told_apart_when_the_study_is_made_again(self) -> None:
        vals = [1, True, 1.0, "1", float("nan"), [1, True], [1.0, True]]
        space = {"c": {"type": "categorical", "vals": vals}}
        section = {"name": "random", "metric": "loss", "max_trials": 40, "max_concurrent_trials": 1, "sampler": "tpe"}
        search, recorded = made(section, space, 3), []
        for index in range(30):
            (create,) = search.exited(index - 1, Exit.COMPLETED) if index else search.start()
            assert isinstance(create, Create)
            recorded.append(json.loads(json.dumps(create.hparams)))
            again = made(section, space, 3)
            for folded, hparams in ((search, create.hparams), *((again, each) for each in recorded)):
                folded.created(folded.created_count, hparams, {})
            search.closed(index, Exit.COMPLETED, float(index % 3))
            for ended in range(index + 1):
                again.closed(ended, Exit.COMPLETED, float(ended % 3))
            assert repr(again.exited(index, Exit.COMPLETED)) == repr(search.exited(index, Exit.COMPLETED))
