"""Ended trials are folded, whatever happens meanwhile: nothing that was accepted is lost, and nothing void comes in its place."""

from __future__ import annotations

import errno
import io
import os
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dethpc.domain.facts import Run
from dethpc.domain.reports import ReportKind
from dethpc.domain.states import RunState, State
from dethpc.errors import LeaseHeld
from dethpc.master.durable import ids
from dethpc.master.experiments.archives import exporting
from dethpc.master.files import folding, late_writes, logs
from dethpc.master.files.folding import Folding
from dethpc.master.files.log_follower import Follower
from dethpc.master.files.logs import Filter
from dethpc.rundir import folded, logline
from dethpc.rundir.archives import LATE, Trial
from dethpc.rundir.files import open_regular, walk
from dethpc.rundir.home import Home
from dethpc.rundir.journal import JournalWriter, read_remains
from dethpc.state import SqlStore, open_store
from tests.master.conftest import T0, experiment, run_of, task_of, trial

HOUR = 3600.0
END = T0 + 90


class Site:
    """A home and a database without a master."""

    def __init__(self, home: Home, store: SqlStore) -> None:
        self.home, self.store = home, store
        self.live: list[Run] = []

    def folding(self, hours: float | None = 6.0, check: Callable[[], None] = lambda: None) -> Folding:
        made = Folding(self.store, Home(self.home.root), check, lambda: self.live, hours)
        self.home = made._home  # as a master that has just started
        return made

    def put(self, number: int = 1, runs: int = 1, blocks: int = 1, **changes: Any) -> None:
        """An experiment with one trial that has ended after so many runs."""
        whose = trial(number, number, runs=runs, **changes)
        rows = [run_of(whose, n) for n in range(1, runs + 1)]
        self.store.commit([experiment(number), whose, task_of(whose), *rows])
        for row in rows:
            self.write(row, blocks)

    def write(self, row: Run, blocks: int = 1) -> None:
        run = self.home.run(row.id)
        run.make()
        run.attempt(0).make()
        with JournalWriter(run.attempt(0).journal) as journal:
            for step in range(20):
                journal.append(
                    ReportKind.METRICS, {"group": "training", "steps_completed": step, "metrics": {"l": step}}
                )
        text = "x" * 1000
        lines = [
            logline.LogLine(T0 + n, "INFO", 0, "stdout", f"{row.id} line {n} {text}") for n in range(1000 * blocks)
        ]
        run.attempt(0).log(0).write_text("".join(map(logline.format, lines)))
        run.attempt(0).started.write_text('{"nodes": ["alpha"]}')
        run.attempt(0).end.write_text('{"finished": true}')
        run.spec.write_text('{"slots": 1}')
        run.log.write_text("slurm says\n")
        run.closed.write_text("{}")

    def files(self) -> list[str]:
        return sorted(name for name in os.listdir(self.home.runs))

    def content(self, *runs: str) -> dict[str, bytes]:
        """All that can be read of these runs."""
        home = Home(self.home.root)
        found = {}
        for run in runs:
            for path in walk(home.find(run).path):
                with open_regular(home.find(run).path / path) as file:
                    found[f"{run}/{path}"] = file.read()
        return found


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(folding, "REST", 0.0)
    home = Home(tmp_path / "home")
    home.make()
    with open_store(home.database_url) as store:
        yield Site(home, store)


def test_an_export_has_the_files_of_a_trial_that_is_folded_meanwhile(at: Site) -> None:
    at.put(1, runs=2)
    work = at.folding()
    installation: Any = SimpleNamespace(home=at.home, version="0", cluster_id="c", cluster_name="c")

    def exported(fold_after: int) -> list[str]:
        archive = io.BytesIO()
        for number, piece in enumerate(exporting.archive(installation, at.store, 1)):
            archive.write(piece)
            if number == fold_after:
                assert work.fold_due(END + 6 * HOUR + 1) == 1
        with zipfile.ZipFile(archive) as made:
            return sorted(name for name in made.namelist() if name.startswith("runs/"))

    whole = exported(fold_after=-1)
    assert len(whole) == 10 and "runs/1.1.2/attempts/0/logs/node-0.log" in whole
    assert exported(fold_after=4) == whole


def test_a_trial_that_ended_some_hours_ago_is_one_file(at: Site) -> None:
    at.put(1, runs=3)
    at.put(2, ended_at=END + 2 * HOUR)
    at.put(3, ended_at=None, state=State.ACTIVE)
    before = at.content("1.1.1", "1.1.2", "1.1.3")
    assert at.folding().fold_due(END + 6 * HOUR - 1) == 0
    assert at.folding().fold_due(END + 6 * HOUR + 1) == 1
    assert at.files() == ["1.1.3.zip", "2.2.1", "3.3.1"]
    assert at.content("1.1.1", "1.1.2", "1.1.3") == before and len(before) == 21
    assert (at.home.runs / "1.1.3.zip").stat().st_mode & 0o777 == 0o600
    assert ids.in_files(at.home).runs == {"1.1.1", "1.1.2", "1.1.3", "2.2.1", "3.3.1"}
    assert at.folding().fold_due(END + 7 * HOUR) == 0


def test_logs_and_journals_read_as_before(at: Site) -> None:
    at.put(runs=2, blocks=3)
    names = ["1.1.1", "1.1.2"]

    def read() -> list[Any]:
        sources = logs.sources(at.home.find, names)
        times = Filter(after=T0 + 500, before=T0 + 502)
        looked = [
            list(logs.read(sources, wanted, 7, newest_first=back))
            for wanted in (Filter(), Filter(text="line 2999"), Filter(nodes=frozenset({"alpha"})), times)
            for back in (True, False)
        ]
        return [looked, read_remains(at.home.find("1.1.2").attempt(0).journal), at.home.find("1.1.1").attempts()]

    before = read()
    asked_before = logs.sources(at.home.find, names)
    at.folding().fold_due(END + 7 * HOUR)
    assert at.files() == ["1.1.2.zip"]
    assert read() == before
    assert [line.text for line in logs.read(asked_before, Filter(text="1.1.2 line 17 "))] == [
        "1.1.2 line 17 " + "x" * 1000
    ]


def test_who_follows_a_log_sees_each_line_once(at: Site) -> None:
    at.put(blocks=2)
    follower = Follower(lambda: logs.sources(at.home.find, ["1.1.1"]), Filter(sources=frozenset({"task"})))
    told = sum(len(piece) for piece in follower.history())
    at.folding().fold_due(END + 7 * HOUR)
    assert told == 2000 and follower.more() == [] and not follower.grown()


class Killed(BaseException):
    """kill -9: nothing that the process would have done after this happens."""


CHANGES = ("replace", "rename", "unlink", "rmdir", "fsync", "open", "mkdir", "remove")


def killed_at(patch: pytest.MonkeyPatch, root: Path, number: int) -> dict[str, int]:
    """Every operation that changes a file fails from the ``number``-th on, as that of a process that is gone."""
    count = {"operations": 0}
    for name in CHANGES:
        real = getattr(os, name)

        def instead(*arguments: Any, real: Any = real, name: str = name, **options: Any) -> Any:
            if name == "open" and not arguments[1] & (os.O_WRONLY | os.O_RDWR):
                return real(*arguments, **options)
            count["operations"] += 1
            if count["operations"] >= number:
                raise Killed
            return real(*arguments, **options)

        patch.setattr(os, name, instead)
    return count


def test_a_master_may_be_killed_before_any_operation(at: Site) -> None:
    """Folding for the first time; and again, with what was written later and one more run."""
    for again in (False, True):
        number = 1
        while True:
            whose = 2 * number + again
            at.put(whose, runs=2, blocks=0)
            names = [f"{whose}.{whose}.1", f"{whose}.{whose}.2"]
            if again:
                at.folding().fold(Trial(whose, whose))
                with late_writes.place(at.home, names[0], lambda run: run.waiting(0)) as path:
                    path.write_text("later\n")
                more = trial(whose, whose, runs=3)
                at.store.commit([more, run_of(more, 3)])
                at.write(run_of(more, 3), blocks=0)
                names.append(f"{whose}.{whose}.3")
            before = at.content(*names)
            killed = False
            with pytest.MonkeyPatch.context() as patch:
                made = at.folding()
                made._home.archives.of(names[0])
                killed_at(patch, at.home.root, number)
                try:
                    made.fold(Trial(whose, whose))
                except Killed:
                    killed = True
            assert at.content(*names) == before, f"killed before operation {number}"
            assert set(names) <= ids.in_files(Home(at.home.root)).runs
            at.folding().fold_due(END + 1e9)
            assert at.content(*names) == before, f"killed before operation {number}, and folded again"
            assert [name for name in at.files() if name.startswith(f"{whose}.")] == [f"{names[-1]}.zip"]
            if not killed:
                break
            number += 1
        assert number > 10


def test_what_the_master_writes_later_counts_and_is_folded_too(at: Site) -> None:
    at.put()
    at.folding().fold_due(END + 7 * HOUR)
    before = at.content("1.1.1")
    with late_writes.place(at.home, "1.1.1", lambda run: run.attempt(0).journal) as path:
        with JournalWriter(path) as journal:
            assert journal.append(ReportKind.METRICS, {"group": "g", "steps_completed": 9, "metrics": {}}).seq == 21
    late_content = at.content("1.1.1")
    assert (
        late_content.keys() == before.keys()
        and len(read_remains(at.home.find("1.1.1").attempt(0).journal).reports) == 21
    )
    assert at.folding().fold_due(END + 8 * HOUR) == 0  # it was written just now, by the clock of the file system
    assert at.folding(hours=0).fold_due(2e10) == 1
    assert at.files() == ["1.1.1.zip"] and at.content("1.1.1") == late_content


def test_what_a_lost_node_writes_after_all_counts_for_nothing(at: Site) -> None:
    at.put()
    at.folding().fold_due(END + 7 * HOUR)
    before = at.content("1.1.1")
    zombie = at.home.run("1.1.1").attempt(0)
    zombie.make()
    with JournalWriter(zombie.journal) as journal:
        journal.append(ReportKind.METRICS, {"group": "training", "steps_completed": 1, "metrics": {"l": -1}})
    assert at.content("1.1.1") == before
    at.folding().fold_due(END + 8 * HOUR)
    assert at.files() == ["1.1.1.zip"] and at.content("1.1.1") == before


def test_what_is_written_while_it_is_folded_is_not_lost(at: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    at.put()
    made, proved = at.folding(), folding.prove

    def meanwhile(*arguments: Any) -> Iterator[None]:
        yield from proved(*arguments)
        with late_writes.place(at.home, "1.1.1", lambda run: run.waiting(0)) as path:
            path.write_text("just now\n")

    monkeypatch.setattr(folding, "prove", meanwhile)
    assert made.fold_due(END + 7 * HOUR) == 0 and at.files() == ["1.1.1"]
    monkeypatch.setattr(folding, "prove", proved)
    assert made.fold_due(END + 7 * HOUR) == 1
    assert at.content("1.1.1")["1.1.1/waiting-0.log"] == b"just now\n"


def test_a_trial_that_goes_on_has_new_runs_beside_the_archive_and_is_one_file_in_the_end(at: Site) -> None:
    at.put(runs=2)
    at.folding().fold_due(END + 7 * HOUR)
    more = trial(1, 1, runs=3, ended_at=None, state=State.ACTIVE)
    at.store.commit([more, run_of(more, 3, state=RunState.RUNNING)])
    at.write(run_of(more, 3))
    before = at.content("1.1.1", "1.1.2", "1.1.3")
    assert at.folding().fold_due(END + 8 * HOUR) == 0 and at.files() == ["1.1.2.zip", "1.1.3"]
    assert len(logs.sources(at.home.find, ["1.1.1", "1.1.2", "1.1.3"])) == 3
    at.store.commit([replace(more, ended_at=END, state=State.COMPLETED), run_of(more, 3)])
    assert at.folding().fold_due(END + 8 * HOUR) == 1 and at.files() == ["1.1.3.zip"]
    assert at.content("1.1.1", "1.1.2", "1.1.3") == before


def test_a_run_whose_job_goes_on_with_another_one_is_left_alone(at: Site) -> None:
    at.put()
    at.store.commit([replace(run_of(trial(1)), scheduler_job_id="77")])
    at.live = [replace(run_of(trial(2)), scheduler_job_id="77", state=RunState.RUNNING)]
    assert at.folding().fold_due(END + 7 * HOUR) == 0
    at.live = []
    assert at.folding().fold_due(END + 7 * HOUR) == 1


def test_a_full_disk_leaves_all_as_it_was(at: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    at.put(1)
    at.put(2)
    before = at.content("1.1.1", "2.2.1")

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert at.folding().fold_due(END + 7 * HOUR) == 0
    assert at.files() == ["1.1.1", "2.2.1"] and at.content("1.1.1", "2.2.1") == before
    assert at.folding().fold_due(END + 7 * HOUR) == 2


def test_a_file_that_cannot_be_read_keeps_its_trial_alone(
    at: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    at.put(1)
    at.put(2)
    real = folding.Source.open

    def broken(source: folding.Source) -> Any:
        if source.path == "1.1.1/spec.json":
            raise OSError(errno.EIO, "Input/output error", source.path)
        return real(source)

    monkeypatch.setattr(folding.Source, "open", broken)
    assert at.folding().fold_due(END + 7 * HOUR) == 1
    assert at.files() == ["1.1.1", "2.2.1.zip"] and "trial 1 stay as they are" in caplog.text


def test_links_and_pipes_are_noted_and_not_followed(at: Site) -> None:
    at.put()
    (at.home.run("1.1.1").path / "secrets").symlink_to("/etc")
    os.mkfifo(at.home.run("1.1.1").attempt(0).log(7))
    assert at.folding().fold_due(END + 7 * HOUR) == 1
    assert folded.index_of(at.home.runs / "1.1.1.zip").left_out == [
        ("1.1.1/attempts/0/logs/node-7.log", "a pipe"),
        ("1.1.1/secrets", "a symbolic link"),
    ]
    assert at.files() == ["1.1.1.zip"] and os.path.isdir("/etc")


@pytest.mark.parametrize("what", ["a link", "a pipe", "a file"])
def test_what_stands_in_the_place_of_late_files_is_not_followed(at: Site, tmp_path: Path, what: str) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "diary").write_text("dear diary")
    at.put()
    there = at.home.run("1.1.1").path / LATE
    plant = {
        "a link": lambda: there.symlink_to(tmp_path / "private"),
        "a pipe": lambda: os.mkfifo(there),
        "a file": lambda: there.write_text("x"),
    }[what]
    before = sorted(at.content("1.1.1"))
    plant()
    assert at.folding().fold_due(END + 7 * HOUR) == 1 and at.files() == ["1.1.1.zip"]
    at.home.run("1.1.1").path.mkdir()  # a node that was given up comes back
    plant()
    assert sorted(name for name in at.content("1.1.1") if not name.endswith("/late")) == before
    at.folding().fold_due(END + 7 * HOUR)
    assert at.files() == ["1.1.1.zip"]
    at.home.run("1.1.1").path.mkdir()
    plant()
    with late_writes.place(at.home, "1.1.1", lambda run: run.log) as path, path.open("a") as file:
        file.write("and more\n")
    assert at.content("1.1.1")["1.1.1/slurm.log"] == b"slurm says\nand more\n"
    assert os.listdir(tmp_path / "private") == ["diary"]


def test_a_master_that_was_replaced_folds_nothing_more(at: Site) -> None:
    at.put()

    def replaced() -> None:
        raise LeaseHeld("another master")

    with pytest.raises(LeaseHeld):
        at.folding(check=replaced).fold_due(END + 7 * HOUR)
    assert at.files() == ["1.1.1"]


def test_an_experiment_that_is_deleted_is_left_to_its_deletion(at: Site) -> None:
    at.put()
    at.store.commit([experiment(1, state=State.DELETING)])
    assert at.folding().fold_due(END + 7 * HOUR) == 0 and at.files() == ["1.1.1"]


def test_it_rests_longer_than_it_works(at: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "REST", 3.0)
    rests: list[float] = []
    at.put(1, blocks=4)
    at.put(2)
    made = at.folding()
    clock = iter(range(100_000))
    monkeypatch.setattr(folding.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(made._rounds, "rest", rests.append)
    assert made.fold_due(END + 7 * HOUR) == 2
    assert len(rests) > 2 * (5 + 7) and min(rests) == 3.0  # after each piece that is written, and that is read back
