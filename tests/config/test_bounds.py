"""Numbers that would keep the master from everything else are refused, with the bound; nothing that was kept becomes unreadable."""

from __future__ import annotations

import pytest

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.loading import load
from dethpc.errors import ConfigError
from dethpc.searcher.halving import share_trials
from dethpc.searcher.methods import build

ASHA = "name: adaptive_asha, metric: loss, time_metric: batches, max_time: 1000"
PBT = (
    "name: pbt, metric: loss, length_per_round: 100, replace_function: {truncate_fraction: 0.2}, "
    "explore_function: {resample_probability: 0.2, perturb_factor: 0.2}"
)


def text(searcher: str, hyperparameters: str = "{}") -> str:
    return f"name: n\nentrypoint: python3 t.py\nsearcher: {{{searcher}}}\nhyperparameters: {hyperparameters}\n"


@pytest.mark.parametrize(
    ("searcher", "field", "bound"),
    [
        ("name: random, metric: loss, max_trials: 1e8", "max_trials", "at most 100,000"),
        (
            "name: random, metric: loss, max_trials: 10, max_concurrent_trials: 1e8",
            "max_concurrent_trials",
            "at most 100,000",
        ),
        ("name: grid, metric: loss, max_concurrent_trials: 100001", "max_concurrent_trials", "at most 100,000"),
        (f"{ASHA}, max_trials: 1e8", "max_trials", "at most 100,000"),
        (f"{ASHA}, max_trials: 10, max_rungs: 1e6", "max_rungs", "at most 100"),
        (f"{ASHA}, max_trials: 10, divisor: 1e300", "divisor", "at most 1,000"),
        (f"{ASHA}, max_trials: 10, bracket_rungs: [101]", "bracket_rungs[0]", "at most 100"),
        (f"{ASHA}, max_trials: 10, bracket_rungs: [{'1, ' * 100}1]", "bracket_rungs", "at most 100"),
        (
            "name: async_halving, metric: loss, max_length: 1000, max_trials: 9, num_rungs: 101",
            "num_rungs",
            "at most 100",
        ),
        ("name: sync_halving, metric: loss, max_length: 100, budget: 100, num_rungs: 1e9", "num_rungs", "at most 100"),
        ("name: sync_halving, metric: loss, max_length: 100, budget: 1e15, num_rungs: 5", "budget", "100,000 trials"),
        ("name: adaptive, metric: loss, max_length: 100, budget: 1e15", "budget", "100,000 trials"),
        ("name: adaptive, metric: loss, max_length: 100, budget: 100, max_rungs: 1e7", "max_rungs", "at most 100"),
        ("name: adaptive_simple, metric: loss, max_length: 100, max_trials: 3000", "max_trials", "2000"),
        (f"{PBT}, population_size: 1e6, num_rounds: 3", "population_size", "at most 2,000"),
        (f"{PBT}, population_size: 10, num_rounds: 1e9", "num_rounds", "at most 10,000"),
        (f"{PBT}, population_size: 2000, num_rounds: 9000", "num_rounds", "100,000 trials"),
        ("name: single, metric: loss, max_length: {batches: 9223372036854775808}", "max_length", "2**63"),
        ("name: single, metric: loss, source_trial_id: 1180591620717411303424", "source_trial_id", "2**63"),
        ("name: random, metric: loss, max_trials: 10001, sampler: tpe", "max_trials", "at most 10,000"),
        (
            "name: random, metric: loss, max_trials: 5000, max_concurrent_trials: 0, sampler: tpe",
            "max_concurrent",
            "at most 1,000",
        ),
        (
            "name: random, metric: loss, max_trials: 50, sampler: {name: tpe, n_ei_candidates: 1e9}",
            "n_ei_candidates",
            "at most",
        ),
    ],
)
def test_a_number_of_a_search_is_bounded_in_words(searcher: str, field: str, bound: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(text(searcher))
    [problem] = refused.value.problems
    assert field in problem.field and bound in str(problem), str(problem)


@pytest.mark.parametrize(
    "range",
    [
        "{type: log, base: 10, minval: 0, maxval: 400}",
        "{type: double, minval: -1.7e308, maxval: 1.7e308}",
        "{type: int, minval: 0, maxval: 1180591620717411303424}",
    ],
)
def test_a_range_that_no_draw_can_be_made_from_is_refused(range: str) -> None:
    with pytest.raises(ConfigError, match="wider than a float can hold|must be between"):
        load(text("name: random, metric: loss, max_trials: 3", f"{{outer: {{x: {range}}}}}"))


def test_many_hyperparameters_in_many_trials_are_too_many_together() -> None:
    many = ", ".join(f"h{n}: 1" for n in range(100))
    with pytest.raises(ConfigError, match="100 hyperparameters in 100,000 trials"):
        load(text("name: random, metric: loss, max_trials: 100000", f"{{{many}}}"))
    load(text("name: random, metric: loss, max_trials: 10000", f"{{{many}}}"))


@pytest.mark.parametrize(
    "number", ["max_restarts: 1180591620717411303424", "records_per_epoch: -1180591620717411303424"]
)
def test_a_whole_number_fits_into_64_bits(number: str) -> None:
    with pytest.raises(ConfigError):
        load(text("name: single, metric: loss") + number)


def test_what_a_database_kept_of_an_earlier_release_is_read_whatever_its_numbers() -> None:
    loaded = load(text("name: random, metric: loss, max_trials: 7, sampler: tpe")).effective()
    kept = {**loaded, "searcher": {**loaded["searcher"], "max_trials": 10**9, "max_concurrent_trials": 10**6}}
    assert getattr(ExperimentConfig.from_json(kept).searcher, "max_trials", 0) == 10**9


@pytest.mark.parametrize("mode", ["aggressive", "standard", "conservative"])
def test_the_largest_search_begins_within_one_decision(mode: str) -> None:
    config = load(
        text(f"{ASHA.replace('1000', '1000000000')}, max_trials: 100000, max_rungs: 100, divisor: 1.1, mode: {mode}")
    ).config
    search = build(config.searcher, {}, 1)
    assert len(search.start()) <= 100_000 and search.total == 100_000


def test_shares_of_many_brackets_are_computed_once() -> None:
    """The sum of the weights was computed again for each of them."""

    class Counted(list[int]):
        reads = 0

        def __iter__(self):  # type: ignore[no-untyped-def]
            Counted.reads += 1
            return super().__iter__()

    assert sum(share_trials(100_000, 1.01, Counted(range(100, 0, -1)))) == 100_000 and Counted.reads == 1


def test_an_option_whose_name_only_looks_like_a_number_is_named() -> None:
    with pytest.raises(ConfigError, match="²"):
        load(text("name: random, metric: loss, max_trials: 50, sampler: {name: tpe, ²: 1e9}"))
