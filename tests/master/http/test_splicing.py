"""What is spliced is what the models would write, to the last byte."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dethpc.domain.facts import Experiment
from dethpc.domain.reports import MOST_LEVELS
from dethpc.domain.states import State, TaskKind
from dethpc.master.http.wire import experiment as wire
from dethpc.master.http.wire.base import Float, Pagination, Plain, Wire
from dethpc.master.http.wire.splicing import Template, stored
from dethpc.state import SqlStore, columns, open_store, queries, rows
from dethpc.state.queries import ExperimentFigures
from tests.master.conftest import Served
from tests.master.conftest import experiment as created
from tests.state.factories import experiment

TEXTS = st.text(max_size=8) | st.sampled_from(
    ["é\x7f\x01", "NaN", "\ud800", '"\\\n', "1e-05", "postgresql://me:secret@host"]
)
WORDS = TEXTS.map(lambda text: text.replace("\ud800", ""))
"""What the model can write, too."""
NUMBERS = st.floats() | st.sampled_from([1e-05, 1e-4, 1e15, 1e16, 123456789012345680.0, -0.0, 5e-324]) | st.integers()
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


class Told(Wire):
    some_value: Plain


class Numbers(Wire):
    first_one: Float | None
    second: str = "so"
    third: Plain
    fourth: list[int] = []
    fifth: bool


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@given(VALUES)
@example(deep(MOST_LEVELS))
@example(deep(MOST_LEVELS + 1))
@example({"a": {"NaN": float("nan")}, "b": [float("inf"), 1e-7]})
def test_a_value_is_told_as_its_column_holds_it_where_that_is_how_it_is_told(value: Any) -> None:
    column: Any = columns.Json()
    write, read = column.bind_processor(None), column.result_processor(None, None)
    text = write(value)
    assert f'{{"someValue":{stored(text)}}}' == Told(some_value=read(text)).model_dump_json(by_alias=True)


@given(st.none() | st.floats(), VALUES, st.booleans())
def test_a_template_writes_what_its_model_does(first: float | None, third: Any, fifth: bool) -> None:
    column: Any = columns.Json()
    text = column.bind_processor(None)(third)
    written = Template(Numbers, {"third"}).written({"fifth": fifth, "third": stored(text), "first_one": first})
    model = Numbers(first_one=first, third=column.result_processor(None, None)(text), fifth=fifth)
    assert written == model.model_dump_json(by_alias=True)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlStore]:
    with open_store(tmp_path_factory.mktemp("splicing") / "state.db") as opened:
        yield opened


CONFIGS = st.fixed_dictionaries(
    {"hyperparameters": st.dictionaries(TEXTS, VALUES, max_size=3), "name": TEXTS},
    optional={
        "searcher": st.fixed_dictionaries({"name": WORDS, "metric": WORDS}),
        "checkpoint_storage": st.fixed_dictionaries({"type": TEXTS, "secret_key": TEXTS}),
        "environment": st.fixed_dictionaries(
            {"environment_variables": st.lists(TEXTS | st.just("API_KEY=1"), max_size=2)}
        ),
        "large": st.just("x" * 10_000),
    },
)
EXPERIMENTS = st.builds(
    lambda changes: replace(experiment(), **changes),
    st.fixed_dictionaries(
        {
            "config": CONFIGS,
            "original_config": TEXTS | st.just("environment: {environment_variables: [TOKEN=1]}"),
            "name": TEXTS,
            "description": TEXTS,
            "labels": st.lists(TEXTS, max_size=3),
            "state": st.sampled_from(State),
            "archived": st.booleans(),
            "ended_at": st.none() | st.floats(1e9, 2e9),
            "progress": NUMBERS.map(float),
            "parent_id": st.none() | st.integers(1, 9),
            "kind": st.sampled_from(TaskKind),
            "external_id": TEXTS,
            "reason": TEXTS,
        }
    ),
)
FIGURES = st.builds(
    ExperimentFigures,
    trials=st.integers(0, 9),
    running=st.integers(0, 2),
    slots_running=st.integers(0, 9),
    checkpoints=st.integers(0, 9),
    checkpoint_bytes=st.integers(0, 2**62),
    best_trial=st.none() | st.integers(1, 9),
    best_metric=st.none() | st.floats(),
    trial_ids=st.lists(st.integers(1, 9), max_size=3).map(tuple),
    external_trial_id=WORDS,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(fact=EXPERIMENTS, figures=FIGURES)
def test_an_experiment_of_a_list_is_told_as_its_model_tells_it(
    fact: Experiment, figures: ExperimentFigures, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire.clock, "time", lambda: 2e9)
    store.commit([fact])
    with store.read() as connection:
        (line,) = queries.experiment_lines(connection, [1])
        (read,) = rows.read(connection, Experiment)
    model = wire.Experiment.of(read, figures)
    assert wire.Experiment.written(line, figures) == model.model_dump_json(by_alias=True)


def test_a_list_tells_of_each_experiment_what_it_is_told_by_itself(served: Served) -> None:
    served.put([created(n, labels=["é", f"n{n}"], progress=n / 7) for n in (1, 2, 3)])
    found = served.session.get("/api/v1/experiments", {"offset": 1, "limit": 2})
    assert found["pagination"] == {"offset": 1, "limit": 2, "startIndex": 1, "endIndex": 3, "total": 3}
    for each in found["experiments"]:
        alone = served.session.get(f"/api/v1/experiments/{each['id']}")["experiment"]
        assert list(each) == list(alone) and {**each, "duration": 0} == {**alone, "duration": 0}


def test_a_page_without_experiments_is_json() -> None:
    page = wire.Experiments.spliced([], {}, Pagination.of(0, 0, 0, 0))
    assert json.loads(page.text) == wire.Experiments(experiments=[], pagination=Pagination.of(0, 0, 0, 0)).model_dump(
        by_alias=True
    )
