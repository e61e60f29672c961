from __future__ import annotations

from pathlib import Path

from dethpc.domain.facts import Row, Trial
from dethpc.engine import ClusterState, events, step
from dethpc.master.durable.change_log import ChangeLog, from_line, rebuild, to_line
from dethpc.rundir.home import Home
from dethpc.rundir.journal import JournalWriter
from dethpc.searcher.methods import build
from dethpc.state import open_store
from tests.master.durable.test_ledger import creation
from tests.state.reading import metrics


def history(home: Home) -> list[Row]:
    """An experiment with one trial that reported, as its rows; the journal stands in the run directory."""
    state = ClusterState(build)
    rows = step(state, creation())
    run = next(iter(state.runs.values()))
    attempt = home.run(run.id).attempt(0)
    attempt.make()
    with JournalWriter(attempt.journal) as journal:
        reports = [
            journal.append("metrics", {"group": "training", "steps_completed": n, "metrics": {"loss": 1 / n}})
            for n in (1, 2, 3)
        ]
    for event in (
        events.Submitted(run.id, "7", 2.0),
        events.AttemptStarted(run.id, 0, ["n0"], None, 0, 3.0),
        events.Reported(run.id, 0, reports[:2], 4.0, 100),
    ):
        rows += step(state, event)
    return rows


def test_every_row_comes_back_from_its_line(tmp_path: Path) -> None:
    for row in history(Home(tmp_path)):
        assert from_line(to_line(row)) == row


def test_a_rebuilt_database_equals_the_one_that_was_lost(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.make()
    rows = history(home)
    ChangeLog(home).append(rows)
    with open(home.changes(1), "a") as file:
        file.write('{"table": "Trial", "row": {"id": 1, "exper')  # the machine stopped here
    with open_store(tmp_path / "a") as lost, open_store(tmp_path / "b") as rebuilt:
        lost.commit(rows)
        assert rebuild(home, rebuilt) == 1
        assert rebuilt.load() == lost.load()
        ids = [trial.id for trial in lost.load().of(Trial)]
        assert metrics(rebuilt, ids) == metrics(lost, ids)
        assert [metric.steps_completed for metric in metrics(rebuilt, ids)] == [1, 2], "not what was never applied"


def test_a_new_master_writes_what_the_last_one_could_not(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.make()
    rows = history(home)
    with open_store(tmp_path / "a") as lost, open_store(tmp_path / "b") as rebuilt:
        lost.commit(rows)  # and then the master was killed before it wrote any line
        ChangeLog(home).catch_up(lost.load())
        rebuild(home, rebuilt)
        assert rebuilt.load() == lost.load()
