"""How a search stood when it ended, kept in a file: it is told again as it was, or computed again."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dethpc.domain.facts import Experiment
from dethpc.master.experiments import ended_search
from dethpc.master.experiments.ended_search import FORMAT, Described
from dethpc.rundir.files import sealed
from dethpc.rundir.home import Home
from tests.master.conftest import T0, experiment
from tests.searcher.test_properties import METHODS, played


def described(method: str = "asha", most: int | None = None) -> dict[str, Any]:
    return played(method, 7, 7, 0.2, random.Random(7)).search.describe(most)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.experiment(1).mkdir(parents=True)
    return home


@pytest.fixture
def ended() -> Experiment:
    return experiment(1, ended_at=T0 + 0.1)


@pytest.mark.parametrize("method", METHODS)
def test_what_every_method_says_is_read_as_it_was_written(method: str, home: Home, ended: Experiment) -> None:
    whole = described(method)
    ended_search.write(home, ended, Described(whole, 10**6))
    kept = ended_search.read(home, ended)
    assert kept is not None and kept.search == whole == kept.cut(None)
    assert kept.cut(2) == described(method, 2)
    assert os.stat(home.search(1)).st_mode & 0o777 == 0o600


def test_what_was_cut_answers_for_no_more_than_it_has(
    home: Home, ended: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    rungs = len(Described(described(), 1).rungs)
    monkeypatch.setattr(ended_search, "_MOST", 2 * rungs)
    ended_search.write(home, ended, Described(described(), 10**6))
    kept = ended_search.read(home, ended)
    assert kept is not None and kept.most == 2
    assert kept.cut(1) == described(most=1) and kept.cut(2) == described(most=2)
    assert kept.cut(3) is None and kept.cut(None) is None
    assert kept.shorter(1) == Described(described(most=1), 1)


def _of(search: Any, **changes: Any) -> bytes:
    about = {"format": FORMAT, "queue_id": experiment(1).queue_id, "ended_at": T0 + 0.1, "most": 1000, **changes}
    return json.dumps(sealed({**about, "search": search})).encode()


def _without(name: str) -> dict[str, Any]:
    return {key: value for key, value in described().items() if key != name}


def _with_trial(**changes: Any) -> dict[str, Any]:
    found = described()
    found["brackets"][0]["rungs"][0]["trials"][0].update(changes)
    return found


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 100,
        b"[1]",
        b"{}",
        b'{"search":' * 100_000,
        _of(described())[:-50],
        _of(described()).replace(b'"created": 20', b'"created": 21', 1),
        _of(described(), format=FORMAT + 1),
        _of(described(), format=FORMAT - 1),
        _of(described(), queue_id="another"),
        _of(described(), ended_at=T0),
        _of(described(), most=0),
        _of([]),
        _of(_without("brackets")),
        _of({**described(), "brackets": [None]}),
        _of({**described(), "news": 1}),
        _of(_with_trial(index="0")),
        _of(_with_trial(index=2**64)),
        _of(_with_trial(value="best")),
    ],
)
def test_what_is_no_description_of_this_end_is_none(content: bytes, home: Home, ended: Experiment) -> None:
    home.search(1).write_bytes(_of(described()))
    assert ended_search.read(home, ended) is not None
    home.search(1).write_bytes(content)
    assert ended_search.read(home, ended) is None


def test_what_cannot_be_read_or_written_is_none(home: Home, ended: Experiment) -> None:
    assert ended_search.read(home, ended) is None
    home.search(1).mkdir()
    ended_search.write(home, ended, Described(described(), 10**6))
    assert ended_search.read(home, ended) is None
    ended_search.drop(home, 1)
    home.search(1).rmdir()
    os.mkfifo(home.search(1))
    assert ended_search.read(home, ended) is None
    ended_search.drop(home, 1)
    assert not home.search(1).exists()
    ended_search.drop(home, 1)
    nowhere = replace(ended, id=2)
    ended_search.write(home, nowhere, Described(described(), 10**6))
    assert not home.experiment(2).exists()
