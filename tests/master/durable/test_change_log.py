from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dethpc.domain import facts
from dethpc.domain.facts import Experiment, Metric, NodeHealth, PoolState, Row, Run, Trial
from dethpc.domain.states import RunState, State, TaskKind
from dethpc.engine import ClusterState, events, step
from dethpc.errors import LeaseHeld, StoreError
from dethpc.master.durable import change_log
from dethpc.master.durable.change_log import ChangeLog, file_of
from dethpc.master.durable.ledger import Ledger, Unwritten
from dethpc.master.durable.row_file import RowFile, from_line, to_line, to_text
from dethpc.master.rebuild import recreate
from dethpc.rundir.home import Home
from dethpc.rundir.journal import JournalWriter
from dethpc.searcher.methods import build
from dethpc.state import open_store
from tests.master.durable.test_ledger import creation
from tests.state.reading import metrics
from tests.waiting import wait_until


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


def ended(home: Home) -> list[Row]:
    """``history``, and its end."""
    return over(history(home))


def over(rows: list[Row]) -> list[Row]:
    experiment = next(row for row in reversed(rows) if isinstance(row, Experiment))
    return [
        *rows,
        replace(experiment, state=State.COMPLETED, ended_at=9.0),
        *(replace(row, state=RunState.ENDED) for row in rows if isinstance(row, Run)),
        *(replace(row, state=State.COMPLETED) for row in rows if isinstance(row, Trial)),
    ]


def test_every_row_comes_back_from_its_line(tmp_path: Path) -> None:
    for row in history(Home(tmp_path)):
        assert from_line(to_line(row)) == (type(row), facts.key(row), row)


def test_a_rebuilt_database_equals_the_one_that_was_lost(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.make()
    rows = history(home)
    ChangeLog(home).append(rows)
    with open(home.changes(1), "a") as file:
        file.write('{"table": "Trial", "row": {"id": 1, "exper')  # the machine stopped here
    with open_store(tmp_path / "a") as lost, open_store(tmp_path / "b") as rebuilt:
        lost.commit(rows)
        assert recreate(home, rebuilt).rows[Experiment] == 1
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
        ChangeLog(home).catch_up(lost)
        recreate(home, rebuilt)
        assert rebuilt.load() == lost.load()


def test_a_start_reads_what_goes_on_once(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.make()
    rows = history(home)
    with open_store(tmp_path / "a") as store:
        store.commit(rows)
        log = ChangeLog(home)
        log.append(rows)
        assert log.catch_up(store) == store.load()
        store.commit(over(rows))  # and then the master was killed
        assert ChangeLog(home).catch_up(store) is None, "what has ended is not for memory"


def test_what_changed_much_after_its_end_is_looked_through_by_one_start_and_not_by_every(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.make()
    rows = ended(home)
    trial = next(row for row in reversed(rows) if isinstance(row, Trial))
    rows += [replace(trial, reason="x" * 60_000 + str(n)) for n in range(2)]  # behind the end, and far from it
    with open_store(tmp_path / "a") as store, open_store(tmp_path / "b") as rebuilt:
        store.commit(rows)
        ChangeLog(home).append(rows[:-2])
        RowFile(home.changes(1)).append(rows[-2:])
        assert ChangeLog(home).catch_up(store) is None, "it was looked through"
        assert ChangeLog(home).catch_up(store) is not None, "it was not again"
        recreate(home, rebuilt)
        assert rebuilt.load(also=[1]) == store.load(also=[1])


def test_restarts_leave_the_files_as_they_were(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.make()
    node = NodeHealth("n0", reason="smells")
    with open_store(tmp_path / "a") as store:
        rows: list[Row] = [*history(home), node]
        store.commit(rows)
        ChangeLog(home).append(rows)
        files = {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")}
        assert home.node_changes in files and home.changes(1) in files
        for _ in range(10):
            ChangeLog(home).catch_up(store)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")} == files


def test_what_was_committed_last_is_caught_up_with_even_when_it_ended_the_experiment(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.make()
    with open_store(tmp_path / "a") as lost, open_store(tmp_path / "b") as rebuilt:
        rows = history(home)
        lost.commit(rows)
        ChangeLog(home).append(rows)
        experiment = replace(lost.load().of(Experiment)[0], state=State.CANCELED, ended_at=9.0)
        runs = [replace(run, state=RunState.ENDED, ended_at=8.0) for run in lost.load().of(Run)]
        lost.commit([experiment, *runs])  # and then the master was killed
        ChangeLog(home).catch_up(lost)
        recreate(home, rebuilt)
        assert rebuilt.load(also=[1]) == lost.load(also=[1])


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "rows.jsonl")
    file.append([NodeHealth("n0"), NodeHealth("n1")])
    with open(file.path, "a") as cut:
        cut.write('{"table": "NodeHealth", "key": ["n1"], "row": {"na')
    file.append([NodeHealth("n0", reason="hot")])
    assert list(file.rows()) == [NodeHealth("n0"), NodeHealth("n1"), NodeHealth("n0", reason="hot")]
    assert file.missing([NodeHealth("n0")]) == [NodeHealth("n0")], "the last line counts"


def test_a_change_to_what_ended_long_ago_outlives_a_master_that_was_killed_before_it_wrote_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.make()
    with open_store(tmp_path / "a") as lost, open_store(tmp_path / "b") as rebuilt:
        rows = ended(home)
        lost.commit(rows)
        ChangeLog(home).append(rows)
        trial = next(row for row in reversed(rows) if isinstance(row, Trial))
        described: list[Row] = [replace(trial, metadata={"tag": "good"})]
        ChangeLog(home).announce(described)
        lost.commit(described)  # and then the master was killed
        ChangeLog(home).catch_up(lost)
        recreate(home, rebuilt)
        assert rebuilt.load(also=[1]) == lost.load(also=[1])


@pytest.mark.parametrize("written", [False, True])
def test_what_describes_an_experiment_that_has_ended_is_caught_up_with_without_a_look_at_its_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    home = Home(tmp_path)
    home.make()
    compared: list[Path] = []
    compare = RowFile.compare
    with open_store(tmp_path / "a") as lost, open_store(tmp_path / "b") as rebuilt:
        rows = ended(home)
        experiment = next(row for row in reversed(rows) if isinstance(row, Experiment))
        lost.commit(rows)
        ChangeLog(home).append(rows)
        described: list[Row] = [replace(experiment, notes="good")]
        ChangeLog(home).announce(described)
        lost.commit(described)
        if written:
            ChangeLog(home).append(described)
        monkeypatch.setattr(RowFile, "compare", lambda self, rows: compared.append(self.path) or compare(self, rows))
        assert ChangeLog(home).catch_up(lost) is not None
        assert not compared and not home.all_announced()
        size = home.changes(1).stat().st_size
        ChangeLog(home).catch_up(lost)
        assert home.changes(1).stat().st_size == size, "nothing was missing any more"
        recreate(home, rebuilt)
        assert rebuilt.load(also=[1]) == lost.load(also=[1])


def test_a_description_that_is_as_it_was_before_the_last_one_is_caught_up_with(tmp_path: Path) -> None:
    """Archived, and taken back: the file says both, the older one last as well as first."""
    home = Home(tmp_path)
    home.make()
    with open_store(tmp_path / "a") as lost, open_store(tmp_path / "b") as rebuilt:
        rows = ended(home)
        experiment = next(row for row in reversed(rows) if isinstance(row, Experiment))
        archived: list[Row] = [replace(experiment, archived=True)]
        lost.commit(rows)
        ChangeLog(home).append(rows)
        ChangeLog(home).append(archived)
        ChangeLog(home).announce([experiment])  # and the master was killed: the database has it, the file does not
        ChangeLog(home).catch_up(lost)
        recreate(home, rebuilt)
        assert rebuilt.load(also=[1]) == lost.load(also=[1])


def test_an_experiment_whose_row_is_long_is_looked_through_by_one_start_and_not_by_every(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.make()
    with open_store(tmp_path / "a") as store:
        rows = [replace(row, notes="long " * 50_000) if isinstance(row, Experiment) else row for row in ended(home)]
        store.commit(rows)
        ChangeLog(home).append(rows)
        before = home.changes(1).read_bytes()
        assert ChangeLog(home).catch_up(store) is not None
        assert home.changes(1).read_bytes() == before


def test_the_first_rows_of_a_file_that_no_experiment_has_are_no_cause_for_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = Home(tmp_path)
    home.make()
    with open_store(tmp_path / "a") as store:
        changes = ChangeLog(home)
        changes.catch_up(store)
        store.commit([NodeHealth("n0")])
        changes.append([NodeHealth("n0")])
    assert RowFile(home.node_changes).missing([NodeHealth("n0")]) == [] and not caplog.records


def test_the_end_of_a_task_outlives_a_master_that_was_killed_before_it_wrote_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.make()
    state = ClusterState(build)
    task = {"id": "t1", "kind": TaskKind.CHECKPOINT_GC, "owner": "ada", "name": "Checkpoint GC", "config": {}}
    rows = step(state, events.CreateTask(**task, pool="default", slots=0, at=1.0))
    with open_store(tmp_path / "a") as lost:
        lost.commit(rows)
        ChangeLog(home).append(rows)
        late = step(state, events.SubmitFailed("t1.1", "Invalid account", 2.0))
        ChangeLog(home).announce(late)
        lost.commit(late)  # and then the master was killed
        ChangeLog(home).catch_up(lost)
        assert not RowFile(home.task_changes).missing(late) and not home.all_announced()


@pytest.mark.parametrize("master", ["killed before it wrote", "that started since", "that wrote to it"])
def test_a_file_that_somebody_has_removed_is_written_anew_from_the_database(
    tmp_path: Path, master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_log, "ENDED_LAST", 0)  # it ended long ago
    home = Home(tmp_path)
    home.make()
    with open_store(tmp_path / "a") as lost, open_store(tmp_path / "b") as rebuilt:
        rows = ended(home)
        lost.commit(rows)
        ChangeLog(home).append(rows)
        changes = ChangeLog(home)
        changes.catch_up(lost)
        experiment = next(row for row in reversed(rows) if isinstance(row, Experiment))
        if master == "that wrote to it":
            changes.append([replace(experiment, notes="better")])
        home.changes(1).unlink()
        described: list[Row] = [replace(experiment, notes="good")]
        changes.announce(described)
        lost.commit(described)
        if master == "killed before it wrote":
            ChangeLog(home).catch_up(lost)
        else:
            changes.append(described)
        recreate(home, rebuilt)
        assert rebuilt.load(also=[1]) == lost.load(also=[1])


def test_what_changed_beside_the_description_is_looked_through(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.make()
    with open_store(tmp_path / "a") as lost, open_store(tmp_path / "b") as rebuilt:
        rows = ended(home)
        experiment = next(row for row in reversed(rows) if isinstance(row, Experiment))
        trial = next(row for row in reversed(rows) if isinstance(row, Trial))
        lost.commit(rows)
        ChangeLog(home).append(rows)
        changes, described = ChangeLog(home), replace(experiment, notes="good")
        for both in ([described], [described, replace(trial, metadata={"tag": "good"})]):
            changes.announce(both)
            lost.commit(both)
        ChangeLog(home).catch_up(lost)
        recreate(home, rebuilt)
        assert rebuilt.load(also=[1]) == lost.load(also=[1])


def test_what_was_announced_is_forgotten_when_it_was_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "MOST_ANNOUNCED", 2)
    home = Home(tmp_path)
    home.make()
    (row,) = (row for row in history(home) if isinstance(row, Experiment))
    changes = ChangeLog(home)
    for id in range(1, 6):
        changes.announce([replace(row, id=id)])
        changes.announce([replace(row, id=id)])
        changes.append([replace(row, id=id)])
    (announced,) = home.all_announced()
    assert announced.read_text().split() == ["5"]


def test_what_a_master_announced_outlives_another_that_was_thawed_in_the_middle_of_its_own_announcement(
    tmp_path: Path,
) -> None:
    """That one had looked at the lease and had not yet opened its file; the one that took over is killed before it appends."""
    home = Home(tmp_path)
    home.make()
    with open_store(tmp_path / "a") as lost, open_store(tmp_path / "b") as rebuilt:
        rows = ended(home)
        lost.commit(rows)
        ChangeLog(home).append(rows)
        trial = next(row for row in reversed(rows) if isinstance(row, Trial))
        described = replace(trial, metadata={"tag": "good"})

        def frozen() -> None:
            ChangeLog(home).announce([described])
            lost.commit([described])

        (other,) = (row for row in step(ClusterState(build), creation()) if isinstance(row, Experiment))
        ChangeLog(home, frozen).announce([replace(other, id=7)])
        ChangeLog(home).catch_up(lost)
        recreate(home, rebuilt)
        assert rebuilt.load(also=[1]) == lost.load(also=[1])
    assert not home.all_announced(), "what was caught up with is forgotten"


def test_a_line_of_before_there_were_checksums_is_read_and_not_written_again(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "rows.jsonl")
    node = NodeHealth("n0", reason="hot")
    file.path.write_text(to_text(node) + "}\n")
    assert list(file.rows()) == [node] and file.missing([node]) == []


def test_a_line_whose_checksum_is_damaged_is_written_again(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "rows.jsonl")
    node = NodeHealth("n0", reason="hot")
    file.path.write_text(to_line(node)[:-5] + '0"}\n')
    assert file.missing([node]) == [node]


def test_a_change_log_keeps_one_line_for_each_row_however_frequently_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_log, "GROWTH", 10_000)
    home = Home(tmp_path)
    home.make()
    rows = history(home)
    trial = next(row for row in reversed(rows) if isinstance(row, Trial))
    path = home.changes(1)
    ChangeLog(home).append(rows)
    with open(path, "ab") as file:
        file.write(b"garbage\n")
    changes = ChangeLog(home)
    for restarts in range(500):
        changes.append([replace(trial, restarts=restarts)])
    assert path.stat().st_size < 2 * sum(len(to_line(row)) for row in rows) + 11_000
    damaged: list[int] = []
    last = {(type(row), facts.key(row)): row for row in RowFile(path).rows(damaged)}
    logged = [row for row in [*rows, replace(trial, restarts=499)] if not isinstance(row, (Metric, PoolState))]
    assert last == {(type(row), facts.key(row)): row for row in logged}
    assert len(damaged) == 1, "it is still said"


def test_a_change_log_is_compacted_when_its_experiment_ends_and_a_good_line_outlives_a_damaged_one(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path)
    home.make()
    rows = history(home)
    trial = next(row for row in reversed(rows) if isinstance(row, Trial))
    experiment = next(row for row in reversed(rows) if isinstance(row, Experiment))
    path = home.changes(1)
    ChangeLog(home).append(rows)
    with open(path, "a") as file:
        file.write(to_line(replace(trial, restarts=7)).replace('"restarts": 7', '"restarts": 6'))
    ended = replace(experiment, state=State.COMPLETED, ended_at=9.0)
    ChangeLog(home).append([ended])
    lines = path.read_text().splitlines()
    assert len(lines) == len(set(lines)) and sum('"Experiment"' in line for line in lines) == 1
    found = list(RowFile(path).rows())
    assert ended in found and [row for row in found if isinstance(row, Trial) and row.id == trial.id] == [trial]
    before = path.read_bytes()
    ChangeLog(home).append([])
    assert path.read_bytes() == before


def test_the_change_log_of_an_experiment_that_has_ended_is_not_made_anew_when_it_is_described(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.make()
    rows = ended(home)
    ChangeLog(home).append(rows)
    experiment = next(row for row in reversed(rows) if isinstance(row, Experiment))
    path = home.changes(1)
    before, file = path.read_bytes(), path.stat().st_ino
    for n in range(3):
        described = replace(experiment, name=f"name {n}")
        ChangeLog(home).append([described])
    assert path.stat().st_ino == file and path.read_bytes().startswith(before)
    assert list(RowFile(path).rows())[-1] == described
    ChangeLog(home).append([replace(experiment, state=State.ACTIVE, ended_at=None)])
    ChangeLog(home).append([described])
    assert path.stat().st_ino != file, "it ended once more"


def test_a_change_log_that_cannot_be_written_keeps_no_other_from_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dethpc.master.durable.ledger.RETRY", 0.01)
    home = Home(tmp_path)
    home.make()
    with open_store(tmp_path / "a") as store:
        changes, ledger = ChangeLog(home), Ledger(store, build)
        ledger.listen(changes.append)
        ledger.start()
        try:
            home.changes(1).mkdir(parents=True)
            rows = [*ledger.do(creation()), *ledger.do(creation())]
            wait_until(lambda: {type(row) for row in RowFile(home.changes(2)).rows()} >= {Experiment, Trial, Run})
            grown = home.changes(2).stat().st_size
            home.changes(1).rmdir()
            wait_until(lambda: home.changes(1).is_file())
        finally:
            ledger.stop()
        assert home.changes(2).stat().st_size == grown, "what is there is not written again"
        for number in (1, 2):
            own = [row for row in rows if file_of(home, row) == home.changes(number)]
            assert list(RowFile(home.changes(number)).rows()) == own


def test_a_search_that_begins_with_many_trials_is_not_compacted_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path)
    home.make()
    rows = history(home)
    trial = next(row for row in reversed(rows) if isinstance(row, Trial))
    compacted: list[Path] = []
    monkeypatch.setattr(change_log, "GROWTH", 0)
    monkeypatch.setattr(RowFile, "compact", lambda self, check_lease: compacted.append(self.path))
    changes = ChangeLog(home)
    changes.append(rows)
    assert not compacted
    for _ in range(3):
        changes.append([trial] * len(rows))
    assert compacted
    assert home.changes(1).stat().st_size > 2 * sum(len(to_line(row)) for row in rows if not isinstance(row, Metric))


def test_a_compaction_that_fails_leaves_nothing_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk of all places. What one that was killed left is gone with the next."""
    home = Home(tmp_path)
    home.make()
    file = RowFile(home.changes(1))
    file.append(history(home))
    file.append(list(file.rows()))
    before, killed = file.path.read_bytes(), file.path.with_name(f".{file.path.name}.99999")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError):
            file.compact()
    assert [path.name for path in file.path.parent.iterdir()] == [file.path.name] and file.path.read_bytes() == before
    killed.write_bytes(before[:100])
    file.compact()
    assert [path.name for path in file.path.parent.iterdir()] == [file.path.name] and file.path.read_bytes() != before


def test_a_master_that_stood_still_while_it_compacted_leaves_the_file_to_the_one_that_took_over(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.make()
    rows = history(home)
    experiment = next(row for row in reversed(rows) if isinstance(row, Experiment))
    trial = next(row for row in reversed(rows) if isinstance(row, Trial))
    ended, meanwhile = replace(experiment, state=State.COMPLETED, ended_at=9.0), replace(trial, restarts=7)
    looks = 0

    def check_lease() -> None:
        nonlocal looks
        looks += 1
        if looks == 3:  # to append, twice; now the file was read, and this master is frozen
            RowFile(home.changes(1)).append([meanwhile])
            raise LeaseHeld("another master has taken over")

    changes = ChangeLog(home, check_lease)
    changes.append(rows)
    with pytest.raises(LeaseHeld):
        changes.append([ended])
    assert [row for row in RowFile(home.changes(1)).rows() if isinstance(row, Trial)][-1] == meanwhile


def test_an_old_row_that_a_thawed_master_appends_does_not_stay_the_last_one(tmp_path: Path) -> None:
    """It was frozen between its look at the lease and its append; another took over meanwhile and appended newer rows."""
    home = Home(tmp_path)
    home.make()
    state = ClusterState(build)
    rows, other = step(state, creation()), step(state, creation())
    trial = next(row for row in rows if isinstance(row, Trial))
    with open_store(tmp_path / "a") as store:
        frozen, changes = ChangeLog(home), ChangeLog(home)
        store.commit([*rows, *other])
        frozen.append([*rows, *other])
        old, new = replace(trial, restarts=1), replace(trial, restarts=2)
        store.commit([old])
        changes.catch_up(store)
        store.commit([new])
        changes.append([new])
        for others in (False, True):  # the next append is to the same file, or to another
            frozen.append([old])
            assert last_of(home, trial) == old
            appended = next(row for row in (other if others else rows) if isinstance(row, Run))
            for _ in range(2):  # one file is looked at with each append
                changes.append([appended])
            assert last_of(home, trial) == new
        size = home.changes(1).stat().st_size
        for _ in range(2):
            changes.append([appended])
        assert home.changes(1).stat().st_size == size, "it is mended once"


def last_of(home: Home, trial: Trial) -> Trial:
    return [row for row in RowFile(home.changes(1)).rows() if isinstance(row, Trial) and row.id == trial.id][-1]


def test_what_a_thawed_master_compacted_gets_back_the_rows_that_it_lacks(tmp_path: Path) -> None:
    """It was frozen between its look at the lease and the instant at which its file takes the place of the other."""
    home = Home(tmp_path)
    home.make()
    rows = step(ClusterState(build), creation())
    trial = next(row for row in rows if isinstance(row, Trial))
    with open_store(tmp_path / "a") as store:
        store.commit(rows)
        changes = ChangeLog(home)
        changes.catch_up(store)
        compacted = home.changes(1).read_bytes()
        new = replace(trial, restarts=2)
        store.commit([new])
        changes.append([new])
        home.changes(1).write_bytes(compacted)
        changes.append([next(row for row in rows if isinstance(row, Run))])
    assert last_of(home, trial) == new


def test_an_old_row_is_not_compacted_into_the_one_that_counts(tmp_path: Path) -> None:
    file, node = RowFile(tmp_path / "rows.jsonl"), NodeHealth("n0", reason="hot")
    file.append([node])
    file.append([replace(node, reason="cold")])
    RowFile(file.path).append([node])
    before = file.path.read_bytes()
    file.compact()
    assert file.path.read_bytes() == before and file.is_strange()
    file.insist([replace(node, reason="cold")])
    assert list(file.rows())[-1].reason == "cold" and not file.is_strange()


def test_a_strange_file_waits_for_the_database_that_says_what_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path)
    home.make()
    rows = step(ClusterState(build), creation())
    trial = next(row for row in rows if isinstance(row, Trial))
    run = next(row for row in rows if isinstance(row, Run))

    def broken() -> None:
        raise StoreError("the database failed: disk I/O error")

    with open_store(tmp_path / "a") as store:
        changes, new = ChangeLog(home), replace(trial, restarts=1)
        store.commit([*rows, new])
        changes.catch_up(store)
        changes.append([new])
        RowFile(home.changes(1)).append([trial])
        with monkeypatch.context() as patch:
            patch.setattr(store, "read", broken)
            with pytest.raises(Unwritten) as unwritten:
                changes.append([run])
        assert last_of(home, trial) == trial
        changes.append(unwritten.value.rows)
    assert last_of(home, trial) == new


def test_a_file_that_is_missing_gets_all_rows_of_an_experiment_whose_own_alone_was_announced(tmp_path: Path) -> None:
    """Somebody removed it, and the master was killed before it wrote it anew with the description."""
    home = Home(tmp_path)
    home.make()
    with open_store(tmp_path / "a") as lost, open_store(tmp_path / "b") as rebuilt:
        rows = ended(home)
        experiment = next(row for row in reversed(rows) if isinstance(row, Experiment))
        lost.commit(rows)
        ChangeLog(home).append(rows)
        described: list[Row] = [replace(experiment, notes="good")]
        ChangeLog(home).announce(described)
        lost.commit(described)
        home.changes(1).unlink()
        ChangeLog(home).catch_up(lost)
        recreate(home, rebuilt)
        assert rebuilt.load(also=[1]) == lost.load(also=[1])
        assert rebuilt.load(also=[1]).of(Trial)


@pytest.mark.parametrize("its_rows", [history, ended])
def test_what_a_power_failure_took_from_the_end_of_a_file_is_written_by_the_next_master(
    tmp_path: Path, its_rows: Callable[[Home], list[Row]]
) -> None:
    """The database was brought to disk, neither the end of the file nor what was announced of it."""
    home = Home(tmp_path)
    home.make()
    with open_store(tmp_path / "a") as store, open_store(tmp_path / "b") as rebuilt:
        rows = its_rows(home)
        log = ChangeLog(home)
        for row in rows:
            log.announce([row])
            store.commit([row])
            log.append([row])
        for path in home.all_announced():
            path.unlink()
        os.truncate(home.changes(1), home.changes(1).stat().st_size // 3)
        ChangeLog(home).catch_up(store)
        recreate(home, rebuilt)
        assert rebuilt.load(also=[1]) == store.load(also=[1])
