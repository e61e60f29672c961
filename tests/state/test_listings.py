"""Tables of experiments and runs, filtered and sorted by any column, on either database."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dethpc.domain import filters
from dethpc.domain.facts import Experiment, Row, Trial
from dethpc.domain.records import UNCATEGORIZED, ArchivedTrial, Project, User, Workspace
from dethpc.domain.states import RunState, State
from dethpc.errors import Refused
from dethpc.state import SqlStore, open_store
from dethpc.state.queries import Page, listings
from tests.domain.test_filters import field, group, text_of
from tests.state.factories import checkpoint, experiment, metric, run, trial


@pytest.fixture(params=["sqlite", "postgresql"], scope="module")
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlStore]:
    if request.param == "sqlite":
        url = str(tmp_path_factory.mktemp("listings") / "state.db")
    else:
        make: Callable[[], str] = request.getfixturevalue("postgres")
        url = make()
    with open_store(url) as opened:
        fill(opened)
        yield opened


def configured(name: str, searcher: str, **hyperparameters: Any) -> dict[str, Any]:
    return {"name": name, "searcher": {"name": searcher}, "hyperparameters": hyperparameters}


def fill(store: SqlStore) -> None:
    lr = {"type": "log", "minval": 1, "maxval": 5}
    done = {"state": State.COMPLETED, "ended_at": 11.5}
    rows: list[Row] = [
        Experiment(**fields(1, "Digits", "single", State.ACTIVE, labels=["a", "Übung"], progress=0.426)),
        Experiment(**fields(2, "letters", "grid", State.COMPLETED, description="100% _ done", ended_at=11.5, lr=lr)),
        Experiment(**fields(3, "Odd", "single", State.PAUSED, project_id=2, archived=True, parent_id=1, pool="gpu")),
        Experiment(**fields(4, "gone", "single", State.DELETED)),
        trial(1, 1, index=0, hparams={"lr": 0.1, "net": {"width": 3}}, best_validation=0.5, best_validation_steps=10),
        trial(2, 2, index=0, hparams={"lr": 0.2, "opt": "Adam"}, metadata={"tags": ["x", "y"], "note": "NaN"}, **done),
        trial(3, 2, index=1, hparams={"lr": math.nan}, best_validation=0.25, external_id="out", **done),
        trial(4, 3, index=0, hparams={"lr": "big", "flag": True}, state=State.PAUSED),
        trial(5, 4, index=0, hparams={"lr": 0.1}, state=State.COMPLETED),
        run("1.1.1", state=RunState.RUNNING),
        checkpoint("c-1", resources={"w": 10}),
        metric(1, group="validation", metrics={"loss": 0.5, "what": "good"}),
        metric(2, group="validation", metrics={"loss": 0.75, "what": "Better"}),
        metric(3, "2.2.1", trial_id=2, group="validation", metrics={"loss": math.nan}),
        metric(4, "2.3.1", trial_id=3, group="validation", metrics={"loss": 0.25}),
        metric(5, "2.3.1", trial_id=3, metrics={"loss.a": 10**400}),
    ]
    store.commit([*rows, *(task_of(row) for row in rows if isinstance(row, Trial))])
    store.put(User(7, "ada", 1.0, 1.0))
    store.put(Workspace(UNCATEGORIZED, "Uncategorized", 7, 1.0))
    store.put(Workspace(2, "Old", 7, 1.0, archived=True))
    store.put(Project(UNCATEGORIZED, UNCATEGORIZED, "Uncategorized", "UNC", 7, 1.0))
    store.put(Project(2, 2, "Second", "SEC", 7, 1.0))
    store.put(ArchivedTrial(2, 1.0))


def fields(id: int, name: str, searcher: str, state: State, **others: Any) -> dict[str, Any]:
    lr = others.pop("lr", {"type": "const", "val": 0.1})
    config = configured(name, searcher, lr=lr)
    fact = experiment(id, state, name=name, metric="loss", config=config, user_id=7, **others)
    return {name: getattr(fact, name) for name in Experiment.__dataclass_fields__}


def task_of(fact: Trial) -> Row:
    from dethpc.engine.stop import trial_task

    return trial_task(experiment(fact.experiment_id), fact)


Query = Callable[..., list[int]]


def ids(store: SqlStore, noun: str, *conditions: dict[str, Any], sort: str = "", **options: Any) -> list[int]:
    page = options.pop("page", Page(limit=None))
    project = options.pop("project_id", None)
    criteria = filters.parse(text_of(*conditions, **{"showArchived": True, **options}))
    select = listings.ids_of_runs if noun == "runs" else listings.ids_of_experiments
    with store.read() as connection:
        chosen, total, begin = select(connection, project, criteria, filters.sortings(sort), page)
    assert page.limit is not None or (total, begin) == (len(chosen), 0)
    return chosen


def of_run(column: str, operator: str = "=", value: Any = None, **others: Any) -> dict[str, Any]:
    return field(column, operator, value, **{"location": "LOCATION_TYPE_RUN", **others})


def in_location(location: str, kind: str = "UNSPECIFIED") -> dict[str, str]:
    return {"location": f"LOCATION_TYPE_{location}", "type": f"COLUMN_TYPE_{kind}"}


HP, META = in_location("RUN_HYPERPARAMETERS", "NUMBER"), in_location("RUN_METADATA", "TEXT")
METRIC, TEXT = in_location("VALIDATIONS", "NUMBER"), in_location("VALIDATIONS", "TEXT")


def name_of(part: Any) -> str | None:
    return f"{part['columnName']} {part['operator']} {part['value']}"[:60] if isinstance(part, dict) else ""


RUNS: list[tuple[dict[str, Any], list[int]]] = [
    (of_run("id", ">", 1), [2, 3, 4]),
    (of_run("id", "=", "3"), [3]),
    (of_run("id", "<", 10**400), [1, 2, 3, 4]),
    (of_run("id", "contains", "3"), [3]),
    (of_run("experimentId", "=", 2), [2, 3]),
    (of_run("experimentName", "contains", "DIG"), [1]),
    (of_run("experimentName", "!=", "Digits"), [2, 3, 4]),
    (of_run("experimentDescription", "contains", "0% _"), [2, 3]),
    (of_run("experimentDescription", "isEmpty"), [1, 4]),
    (of_run("searcherType", "=", "single"), [1, 4]),
    (of_run("searcherMetric", "notEmpty"), [1, 2, 3, 4]),
    (of_run("isExpMultitrial", "=", True), [2, 3]),
    (of_run("isExpMultitrial", "!=", True), [1, 4]),
    (of_run("startTime", "<", "1970-01-01T00:00:03Z"), [1, 2, 3, 4]),
    (of_run("endTime", "isEmpty"), [1, 4]),
    (of_run("duration", "=", 9), [2, 3]),
    (of_run("state", "=", "STATE_RUNNING"), [1]),
    (of_run("state", "=", "ACTIVE"), [1]),
    (of_run("state", "!=", "COMPLETED"), [1, 4]),
    (of_run("state", "contains", "pau"), [4]),
    (of_run("state", "=", "NO_SUCH"), []),
    (of_run("experimentProgress", "=", 43), [1]),
    (of_run("user", "=", 7), [1, 2, 3, 4]),
    (of_run("user", "!=", "ada"), []),
    (of_run("user", "contains", 7), []),
    (of_run("tags", "=", "a"), [1]),
    (of_run("tags", "contains", "Übu"), [1]),
    (of_run("tags", "isEmpty"), [2, 3, 4]),
    (of_run("forkedFrom", "notEmpty"), [4]),
    (of_run("resourcePool", "=", "gpu"), [4]),
    (of_run("projectId", "=", 2), [4]),
    (of_run("checkpointSize", ">", 5), [1]),
    (of_run("checkpointCount", "=", 1), [1]),
    (of_run("searcherMetricsVal", "<=", 0.25), [3]),
    (of_run("searcherMetricsVal", "isEmpty"), [2, 4]),
    (of_run("externalRunId", "=", "out"), [3]),
    (of_run("localId", "=", "SEC-4"), [4]),
    (of_run("parentArchived", "=", "true"), [4]),
    (of_run("archived", "=", True), [2, 4]),
    (of_run("archived", "!=", True), [1, 3]),
    (field("hp.lr", "<", 0.15, **HP), [1]),
    (field("hp.lr", "notEmpty", None, **HP), [1, 2, 3, 4]),
    (field("hp.net.width", "=", 3, **HP), [1]),
    (field("hp.opt", "contains", "ad", **in_location("RUN_HYPERPARAMETERS", "TEXT")), [2]),
    (field("hp.flag", "=", True, **in_location("RUN_HYPERPARAMETERS")), [4]),
    (field("metadata.tags", "=", "y", **META), [2]),
    (field("metadata.note", "=", "NaN", **META), [2]),
    (field("metadata.note", "isEmpty", None, **META), [1, 3, 4]),
    (field("validation.loss.last", ">", 0.3, **METRIC), [1]),
    (field("validation.loss.mean", "=", 0.625, **METRIC), [1]),
    (field("validation.loss.max", "<", 1, **METRIC), [1, 3]),
    (field("validation.loss.isEmpty.min", "isEmpty", None, **METRIC), [1, 2, 3, 4]),
    (field("validation.what.last", "contains", "BETT", **TEXT), [1]),
    (field("validation.what.last", "=", "Better", **TEXT), [1]),
    (field("training.loss.a.last", "notEmpty", None, **in_location("TRAINING")), []),
]


@pytest.mark.parametrize(("condition", "expected"), RUNS, ids=name_of)
def test_runs_that_meet_a_condition(store: SqlStore, condition: dict[str, Any], expected: list[int]) -> None:
    assert ids(store, "runs", condition) == expected
    # the same where the rest is JSON, which is looked at elsewhere
    everything = group(field("hp.x", "isEmpty", **HP), field("hp.x", "notEmpty", **HP), conjunction="or")
    assert ids(store, "runs", condition, everything) == expected
    others = [id for id in (1, 2, 3, 4) if id not in expected]
    complement = group(condition, *(of_run("id", "=", id) for id in others), conjunction="or")
    assert ids(store, "runs", complement) == ids(store, "runs", complement, everything) == [1, 2, 3, 4]


EXPERIMENTS: list[tuple[dict[str, Any], list[int]]] = [
    (field("id", ">=", 2), [2, 3]),
    (field("name", "=", "Odd"), [3]),
    (field("state", "=", "RUNNING"), [1]),
    (field("numTrials", "=", 2), [2]),
    (field("progress", ">", 42), [1]),
    (field("checkpointCount", "=", 1), [1]),
    (field("searcherMetricsVal", "<", 0.3), [2]),
    (field("externalTrialId", "=", "out"), [2]),
    (field("archived", "=", True), [3]),
    (field("searcherType", "contains", "gri"), [2]),
    (field("hp.lr", "=", 0.1, **in_location("HYPERPARAMETERS", "NUMBER")), [1, 3]),
    (field("hp.lr", "contains", 3, **in_location("HYPERPARAMETERS", "NUMBER")), [2]),
    (field("hp.lr", "notEmpty", None, **in_location("HYPERPARAMETERS")), [1, 2, 3]),
    (field("validation.loss.min", "<", 0.3, **METRIC), [2]),
]


@pytest.mark.parametrize(("condition", "expected"), EXPERIMENTS, ids=name_of)
def test_experiments_that_meet_a_condition(store: SqlStore, condition: dict[str, Any], expected: list[int]) -> None:
    assert ids(store, "experiments", condition) == expected


def test_what_is_archived_is_shown_on_request(store: SqlStore) -> None:
    assert ids(store, "runs", showArchived=False) == [1, 3]
    assert ids(store, "experiments", showArchived=False) == [1, 2]
    assert ids(store, "runs", project_id=2) == [4] and ids(store, "experiments", project_id=1) == [1, 2]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("id=desc", [4, 3, 2, 1]),
        ("experimentName=desc", [2, 3, 4, 1]),
        ("experimentId=desc,id=desc", [4, 3, 2, 1]),
        ("searcherMetricsVal=asc", [3, 1, 2, 4]),
        ("searcherMetricsVal=desc", [1, 3, 2, 4]),
        ("searcherType=asc,id=desc", [3, 2, 4, 1]),
        ("hp.lr=asc", [1, 2, 3, 4]),
        ("hp.opt=desc,searcherMetricsVal=asc", [2, 3, 1, 4]),
        ("metadata.note=asc,id=desc", [2, 4, 3, 1]),
        ("validation.loss.last=desc", [1, 3, 2, 4]),
        ("archived=desc,hp.flag=asc,id=asc", [4, 2, 1, 3]),
        ("duration=asc", [2, 3, 1, 4]),
    ],
)
def test_runs_are_sorted(store: SqlStore, sort: str, expected: list[int]) -> None:
    assert ids(store, "runs", sort=sort) == expected


def test_pages_are_cut_alike_by_the_database_and_here(store: SqlStore) -> None:
    for sort in ("experimentId=desc", "hp.none=asc,experimentId=desc"):
        whole = ids(store, "runs", sort=sort)
        for page in (Page(1, 2), Page(-1, 5), Page(9, 1), Page(0, 0)):
            begin = page.begin(4)
            assert ids(store, "runs", sort=sort, page=page) == whole[begin : begin + (page.limit or 0)]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (of_run("nothing", "=", 1), "no column 'nothing', only archived, "),
        (of_run("startTime", "contains", "x"), "compare it"),
        (of_run("startTime", "<", 3), "a time such as"),
        (of_run("id", "<", "x"), "with a number"),
        (of_run("archived", "=", "x"), "true or false"),
        (of_run("tags", "<", "x"), "use =, !="),
        (field("name", "=", "x"), "no columns at LOCATION_TYPE_EXPERIMENT"),
        (field("hp.x", "=", 3, **in_location("HYPERPARAMETERS")), "no columns at LOCATION_TYPE_HYPERPARAMETERS"),
        (field("loss", "=", 3, **METRIC), "no column of a metric"),
        (field("validation.loss.min", "=", "x", **METRIC), "with a number"),
    ],
)
def test_conditions_that_cannot_be_are_refused(store: SqlStore, condition: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused, match=message):
        ids(store, "runs", condition)


def test_orders_that_cannot_be_are_refused(store: SqlStore) -> None:
    for sort in ("nothing=asc", "a.b=asc"):
        with pytest.raises(Refused, match="no column"):
            ids(store, "runs", sort=sort)


def test_many_conditions_are_taken(store: SqlStore) -> None:
    many = [of_run("id", "=", id) for id in range(3, 500)]
    assert ids(store, "runs", group(*many, conjunction="or")) == [3, 4]
    nested = of_run("id", "=", 2)
    for _ in range(28):
        nested = group(nested, of_run("id", "=", 1), conjunction="or")
    assert ids(store, "runs", nested) == [1, 2]


ODD: list[Any] = [1, -1.5, 10**400, True, "x", "%", "nan", "2025-11-13T02:13:20Z", "0001-01-01T00:00:00+14:00", ""]


@pytest.mark.parametrize("noun", ["runs", "experiments"])
def test_every_column_takes_or_refuses_every_operator_and_value(store: SqlStore, noun: str) -> None:
    listing = listings.RUNS if noun == "runs" else listings.EXPERIMENTS
    columns = [(name, listing.location, "UNSPECIFIED") for name in listing.columns]
    columns += [
        (f"{prefix}lr", location, kind)
        for location, (prefix, *_) in listing.json.items()
        for kind in ("UNSPECIFIED", "NUMBER", "DATE")
    ]
    columns += [("validation.loss.last", "VALIDATIONS", kind) for kind in ("UNSPECIFIED", "NUMBER", "TEXT")]
    values = itertools.cycle(ODD)
    for name, location, kind in columns:
        assert sorted(ids(store, noun, sort=f"{name}=desc")) == sorted(ids(store, noun))
        for operator in filters.OPERATORS:
            for value in itertools.islice(values, 3):
                condition = field(name, operator, value, **in_location(location, kind))
                with contextlib.suppress(Refused):
                    ids(store, noun, condition)
