"""Where answers are made: nobody waits in the event loop for another's."""

from __future__ import annotations

import inspect
import json
import math
import threading
from collections.abc import Iterator
from functools import reduce
from typing import Annotated, Any, get_type_hints

import pytest
from fastapi import FastAPI, Response
from pydantic import BaseModel, PlainSerializer

from dethpc.client.in_process import InProcess
from dethpc.client.session import Session
from dethpc.errors import MasterError
from dethpc.master.http import models
from dethpc.master.http.models import Wire
from dethpc.master.http.nouns import ROUTERS
from dethpc.master.http.router import new_router
from tests.master.conftest import Served, experiment, trained, trial

WRITTEN_IN: list[str] = []


def _written(value: int) -> Any:
    WRITTEN_IN.append(threading.current_thread().name)
    if value < 0:
        raise ValueError("it cannot be written")
    return value


class Told(Wire):
    how_many: Annotated[int, PlainSerializer(_written)] = 0


class More(Told):
    beside: int = 1


routes = new_router()


@routes.get("/told")
def told(value: int) -> Told:
    return Told(how_many=value)


@routes.get("/more")
def more() -> Told:
    return More(how_many=2)


@routes.get("/status")
def with_status(response: Response) -> Told:
    response.status_code = 500
    return Told()


@pytest.fixture
def session() -> Iterator[Session]:
    app = FastAPI()
    app.include_router(routes)
    WRITTEN_IN.clear()
    made = Session(InProcess(app), "any", retries=0)
    yield made
    made.close()


def test_an_answer_is_made_in_the_thread_that_found_it(session: Session) -> None:
    assert session.get("/told", {"value": 3}) == {"howMany": 3}
    assert WRITTEN_IN and "in-process" not in WRITTEN_IN  # the name of the event loop's thread


def test_an_answer_shows_what_the_route_declares_and_no_more(session: Session) -> None:
    assert session.get("/more") == {"howMany": 2}


def test_a_route_that_sets_the_status_of_its_answer_still_does(session: Session) -> None:
    with pytest.raises(MasterError):
        session.get("/status")


def _models() -> Iterator[tuple[str, Any]]:
    for router in ROUTERS:
        for route in router.routes:
            endpoint = getattr(route, "endpoint", None)
            if endpoint is None or "GET" not in (getattr(route, "methods", None) or ()):
                continue
            hints = get_type_hints(endpoint)
            model = hints.pop("return", None)
            if isinstance(model, type) and issubclass(model, BaseModel) and Response not in hints.values():
                yield f"{endpoint.__module__}.{endpoint.__name__}", endpoint


def test_every_list_is_made_in_a_thread() -> None:
    """The few answers of ``unmanaged`` have a line."""
    found = dict(_models())
    assert len(found) > 40
    in_the_loop = [
        name
        for name, endpoint in found.items()
        if not (inspect.iscoroutinefunction(endpoint) or hasattr(endpoint, "__wrapped__") or ".unmanaged." in name)
    ]
    assert in_the_loop == []


def test_a_page_of_checkpoints_hides_the_secrets_of_their_configuration_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = [trial(id) for id in (1, 2, 3)]
    served.put([experiment(1), *trials, *(row for one in trials for row in trained(one))])
    hidden: list[Any] = []
    masked = models.masked

    def counting(config: Any) -> Any:
        hidden.append(config)
        return masked(config)

    monkeypatch.setattr(models, "masked", counting)
    models._without_secrets_of.cache_clear()  # other tests ask for the same configuration
    found = served.session.get("/api/v1/experiments/1/checkpoints")["checkpoints"]
    assert len(found) > 3 and len(hidden) == 1
    assert {one["training"]["experimentConfig"]["name"] for one in found} == {experiment(1).config.get("name")}


@pytest.mark.parametrize(
    "config",
    [
        None,
        {},
        {"a": [math.nan, -math.inf, 1.5, True, None], "b": {"secret_key": "x", "port": 1}, "c": "https://u:p@h"},
        {"a": "\ud800"},
        {"a": "long" * models._LARGEST_KEPT, "password": "x"},
        {"slurm": {"prologue": "export API_KEY=x"}, "environment": {"environment_variables": {"cpu": ["TOKEN=x"]}}},
        reduce(lambda inner, _: {"a": inner}, range(models.MOST_LEVELS + 3), {"token": "x"}),
        reduce(lambda inner, _: {"a": inner}, range(400), {"token": "x"}),
    ],
)
def test_a_configuration_that_is_kept_is_shown_as_one_that_is_not(config: Any) -> None:
    class Answer(Wire):
        config: models.MaskedConfig

    expected = models.masked(models.plain(config))
    for _ in range(2):
        assert json.loads(Answer(config=config).model_dump_json()) == {"config": expected}


def test_a_configuration_that_changes_in_place_is_shown_as_it_is_now() -> None:
    config = {"name": "before", "password": "x"}
    assert models._shown(config)["name"] == "before"
    config["name"] = "after"
    assert models._shown(config) == {"name": "after", "password": models.masked({"password": "x"})["password"]}
