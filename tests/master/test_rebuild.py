"""The database from files, some of which are damaged."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from dethpc.domain.facts import Attempt, Checkpoint, Experiment, Metric, NodeHealth, Run, Trial
from dethpc.domain.records import User
from dethpc.domain.states import CheckpointState, RunState
from dethpc.engine import events
from dethpc.errors import Refused
from dethpc.master.durable import ids
from dethpc.master.durable.change_log import ChangeLog
from dethpc.master.durable.ledger import Ledger
from dethpc.master.durable.records import Records
from dethpc.master.durable.row_file import RowFile, from_line, to_line
from dethpc.master.rebuild import Recreated, lost_ids, recreate, sentences
from dethpc.rundir.files import write_json
from dethpc.rundir.home import Home
from dethpc.rundir.journal import JournalWriter, read
from dethpc.searcher.methods import build
from dethpc.state import open_store, rows
from tests.master.durable.test_change_log import history
from tests.state.reading import metrics


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Of one experiment, in its change log and its journal."""
    home = Home(tmp_path / "home")
    home.make()
    ChangeLog(home).append(history(home))
    return home


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line.replace(b'"Trial"', b'"Trail"'),
        lambda line: line.replace(b'"key": [1]', b'"key": [2]'),
        lambda line: line.replace(b'"state": "ACTIVE"', b'"state": "ACTIVF"'),
        lambda line: line.replace(b'"restarts": 0', b'"restarts": "0"'),
        lambda line: line.replace(b'"restarts": 0', b'"restarts": 9223372036854775808'),
        lambda line: line.replace(b'"restarts": 0', b'"restarts": null'),
        lambda line: line.replace(b'"hparams": {', b'"hparams": [{').replace(b"}, ", b"}], ", 1),
        lambda line: line.replace(b"hparams", b"h\xffarams"),
        lambda line: line.replace(b'"restarts": 0', b'"restarts": 8'),  # one bit, and still a valid row
        lambda line: line.replace(b'"crc": "', b'"crb": "'),
        lambda line: line[:-5] + b'"}\n',
        lambda line: b"[1,2]\n",
        lambda line: b'{"table": "Trial", "key": [{}], "row": null}\n',
        lambda line: b"[" * 100_000 + b"\n",
        lambda line: b"\x00\x80garbage\n",
    ],
)
def test_a_line_of_any_damage_is_read_over(home: Home, change: object) -> None:
    row = next(row for row in RowFile(home.changes(1)).rows() if isinstance(row, Trial))
    line = to_line(row).encode()
    damaged = change(line)  # type: ignore[operator]
    assert damaged != line
    with pytest.raises(ValueError, match="damaged line"):
        from_line(damaged)


def test_damaged_lines_are_counted_but_not_those_that_a_later_one_repeats(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "rows.jsonl")
    hot = to_line(NodeHealth("n1", reason="hot")).encode()
    broken = hot.replace(b"hot", b"h\xff")
    cut_off = hot[: len(hot) // 2] + b"\n"
    file.path.write_bytes(broken + cut_off + b'{"tab\n' + hot + b"garbage\n" + broken)
    bad: list[int] = []
    assert list(file.rows(bad)) == [NodeHealth("n1", reason="hot")]
    assert bad == [5, 6]


def test_an_experiment_that_cannot_be_recreated_is_named_and_its_ids_are_kept(home: Home, tmp_path: Path) -> None:
    home.experiment(5).mkdir()
    home.run("5.7.1").make()
    home.experiment(3).mkdir()
    trial = next(row for row in RowFile(home.changes(1)).rows() if isinstance(row, Trial))
    home.changes(3).write_text(to_line(replace(trial, id=4, experiment_id=3)))
    with open_store(tmp_path / "again") as again:
        outcome = recreate(home, again)
        assert outcome.rows[Experiment] == 1 and not outcome.complete
        assert "has no row of the experiment itself" in outcome.lost[3] and "is missing" in outcome.lost[5]
        assert outcome.unknown_runs == ["5.7.1"]
        assert sum("could not be recreated" in line for line in sentences(outcome)) == 2
        with pytest.raises(Refused, match=re.escape("experiments 3, 5 and run 5.7.1")):
            ids.check(home, again)
        lost = lost_ids(outcome)
        write_json(home.losses, {"experiments": sorted(lost.experiments), "runs": sorted(lost.runs)})
        ids.check(home, again)
        assert (again.load().next_experiment_id, again.load().next_trial_id) == (6, 8)


def test_a_report_that_no_database_takes_costs_itself(home: Home, tmp_path: Path) -> None:
    journal = home.run("1.1.1").attempt(0).journal
    with open_store(tmp_path / "again") as again:
        outcome = recreate(home, again)
        assert outcome.complete and outcome.rows[Metric] == 2
    from dethpc.rundir.journal import JournalWriter

    journal.unlink()
    with JournalWriter(journal) as writer:
        for steps in (2**70, 1):
            writer.append("metrics", {"group": "training", "steps_completed": steps, "metrics": {"loss": 1.0}})  # type: ignore[arg-type]
    with open_store(tmp_path / "once more") as again:
        outcome = recreate(home, again)
        assert outcome.damaged == {journal: [1]} and outcome.rows[Metric] == 1


def test_a_journal_that_is_gone_has_lost_its_end_or_cannot_be_read_is_named(home: Home, tmp_path: Path) -> None:
    journal = home.run("1.1.1").attempt(0).journal
    whole = journal.read_bytes()
    reports = max(row.applied_seq for row in RowFile(home.changes(1)).rows() if isinstance(row, Attempt))

    def rebuilt(name: str) -> Recreated:
        with open_store(tmp_path / name) as store:
            return recreate(home, store)

    journal.write_bytes(whole.splitlines(keepends=True)[0])
    outcome = rebuilt("cut off")
    assert outcome.missing == {journal: reports - 1} and not outcome.complete
    journal.unlink()
    outcome = rebuilt("gone")
    assert outcome.missing == {journal: reports}
    assert f"{journal} is missing or has lost its end: {reports} reports" in list(sentences(outcome))[1]
    os.mkfifo(journal)
    assert rebuilt("a pipe").unreadable == {journal: "It is no regular file"}
    journal.unlink()
    journal.mkdir()
    outcome = rebuilt("no file")
    assert outcome.unreadable == {journal: "Is a directory"} and not outcome.complete and outcome.rows[Experiment] == 1
    assert "cannot be read: Is a directory" in list(sentences(outcome))[1]


def test_a_report_behind_lines_that_are_gone_comes_back(home: Home, tmp_path: Path) -> None:
    journal = home.run("1.1.1").attempt(0).journal
    journal.write_bytes(journal.read_bytes().splitlines(keepends=True)[1])
    with open_store(tmp_path / "again") as again:
        outcome = recreate(home, again)
        assert outcome.missing == {journal: 1} and not outcome.damaged
        assert [metric.steps_completed for metric in metrics(again, [1])] == [2]


def test_what_a_later_attempt_trained_again_is_not_counted_as_recreated(home: Home, tmp_path: Path) -> None:
    attempt = [row for row in RowFile(home.changes(1)).rows() if isinstance(row, Attempt)][-1]
    RowFile(home.changes(1)).append([replace(attempt, void_after=1)])
    with open_store(tmp_path / "again") as again:
        assert recreate(home, again).rows[Metric] == len(metrics(again, [1])) == 1


def test_a_change_log_that_cannot_be_read_costs_its_experiment_alone(home: Home, tmp_path: Path) -> None:
    home.changes(2).mkdir(parents=True)
    with open_store(tmp_path / "again") as again:
        outcome = recreate(home, again)
    assert outcome.rows[Experiment] == 1 and outcome.lost == {2: f"{home.changes(2)} cannot be read: Is a directory"}


def test_an_open_experiment_whose_file_knows_more_rows_is_not_served(home: Home, tmp_path: Path) -> None:
    with open_store(tmp_path / "older") as older:
        older.commit([row for row in RowFile(home.changes(1)).rows() if not isinstance(row, Attempt)])
        before = home.changes(1).read_bytes()
        with pytest.raises(Refused, match=r"is older than the files .* 1 of the rows in .*det master rebuild"):
            ChangeLog(home).catch_up(older)
        assert home.changes(1).read_bytes() == before


def test_an_open_experiment_whose_run_has_ended_by_its_file_is_not_served(home: Home, tmp_path: Path) -> None:
    """An older copy may know all rows: it is that of before somebody killed the experiment."""
    rows = list(RowFile(home.changes(1)).rows())
    run = next(row for row in reversed(rows) if isinstance(row, Run))
    RowFile(home.changes(1)).append([replace(run, state=RunState.ENDED, ended_at=9.0)])
    before = home.changes(1).read_bytes()
    with open_store(tmp_path / "older") as older:
        older.commit(rows)
        with pytest.raises(Refused, match=r"is older than the files .* 1 of the rows in .*det master rebuild"):
            ChangeLog(home).catch_up(older)
    assert home.changes(1).read_bytes() == before


def test_a_new_database_is_not_served_where_a_task_has_run(home: Home, tmp_path: Path) -> None:
    run = f"{uuid4()}.1"
    home.run(run).path.mkdir()
    with open_store(tmp_path / "db") as store:
        recreation = recreate(home, store)
        assert recreation.unknown_runs == [run]
        with pytest.raises(Refused, match=f"does not know run {run}.*det master rebuild"):
            ids.check(home, store)
        lost = lost_ids(recreation)
        write_json(home.losses, {"experiments": sorted(lost.experiments), "runs": sorted(lost.runs)})
        ids.check(home, store)


def test_a_new_database_is_not_served_where_there_were_users(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    with open_store(tmp_path / "db") as store, open_store(tmp_path / "new") as new:
        ids.check(home, store)
        Records(store, home).add(User, username="ada", created_at=1.0, modified_at=1.0)
        before = home.records.read_bytes()
        ids.check(home, store)
        with pytest.raises(Refused, match="does not know user ada.*det master rebuild"):
            ids.check(home, new)
        assert home.records.read_bytes() == before
        recreate(home, new)
        ids.check(home, new)


def test_a_database_of_all_files_is_served_whatever_else_is_there(home: Home, tmp_path: Path) -> None:
    (home.runs / "0123456789abcdef0123456789abcdef.1").mkdir()  # rendered without a master
    (home.runs / "1.1.1.old").mkdir()
    (home.experiments / "notes").mkdir()
    with open_store(tmp_path / "db") as store:
        recreate(home, store)
        ids.check(home, store)
        ChangeLog(home).catch_up(store)
        assert json.loads(store.load().of(Run)[0].id[0]) == 1


def test_a_report_that_came_by_http_alone_counts_when_the_journal_gets_it_after_a_rebuild(tmp_path: Path) -> None:
    """A full disk refused two reports, and the database that had them is lost before the disk takes them."""
    home = Home(tmp_path / "home")
    home.make()
    known = history(home)  # three reports are written
    run = next(row for row in known if isinstance(row, Run))
    journal = home.run(run.id).attempt(0).journal
    written = journal.stat().st_size
    with JournalWriter(journal) as writer:
        trained = {"group": "training", "steps_completed": 4, "metrics": {"loss": 0.25}}
        refused = [writer.append("metrics", trained), writer.append("checkpoint", {"uuid": "c", "steps_completed": 4})]
    whole = journal.read_bytes()
    os.truncate(journal, written)
    with open_store(tmp_path / "lost") as lost, open_store(tmp_path / "again") as again:
        changes = ChangeLog(home)
        lost.commit(known)
        changes.append(known)
        ledger = Ledger(lost, build)
        ledger.listen(changes.append)
        ledger.start()
        ledger.do(events.Reported(run.id, 0, read(journal)[0], 5.0, written))
        ledger.do(events.Reported(run.id, 0, refused, 6.0))
        ledger.stop()
        deleted = [replace(row, state=CheckpointState.DELETED) for row in lost.load().of(Checkpoint)]
        lost.commit(deleted)
        changes.append(deleted)

        assert recreate(home, again).missing == {journal: 2}
        journal.write_bytes(whole)
        ledger = Ledger(again, build)
        attempt = ledger.state.attempt(run.id, 0)
        assert attempt is not None and (attempt.applied_seq, attempt.applied_offset) == (3, written)
        ledger.start()
        reports, offset = read(journal, attempt.applied_offset, attempt.applied_seq)
        ledger.do(events.Reported(run.id, 0, reports, 7.0, offset))
        ledger.stop()
        assert [metric.steps_completed for metric in metrics(again, [1])] == [1, 2, 3, 4]
        assert metrics(again, [1]) == metrics(lost, [1])
        for fact in (Trial, Checkpoint):
            assert again.load().of(fact) == lost.load().of(fact)


def test_a_report_that_is_lost_for_good_counts_no_less_after_a_rebuild(home: Home, tmp_path: Path) -> None:
    """Of a run that is over, and of a journal that lost what had been read of it, nothing is to come."""
    journal, changes = home.run("1.1.1").attempt(0).journal, RowFile(home.changes(1))
    run = [row for row in changes.rows() if isinstance(row, Run)][-1]
    attempt = [row for row in changes.rows() if isinstance(row, Attempt)][-1]

    def applied(name: str) -> int:
        with open_store(tmp_path / name) as store:
            assert recreate(home, store).missing
            with store.read() as connection:
                return max(row.applied_seq for row in rows.read(connection, Attempt))

    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(lines[0])
    changes.append([replace(attempt, applied_seq=3, applied_offset=len(lines[0]))])
    assert applied("by HTTP") == 1
    changes.append([replace(attempt, applied_seq=3, applied_offset=len(lines[0] + lines[1]))])
    assert applied("lost its end") == 3
    changes.append([replace(attempt, applied_seq=3, applied_offset=len(lines[0]))])
    changes.append([replace(run, state=RunState.ENDED)])
    assert applied("over") == 3
