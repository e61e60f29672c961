"""One run's trouble is its own: whatever one run reports or loses, the others are submitted, read, polled and killed."""

from __future__ import annotations

import json
import os
import zlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dethpc.domain.ports import JobState
from dethpc.domain.reports import ReportKind
from dethpc.domain.states import End, RunState, State
from dethpc.engine import events
from dethpc.errors import ShuttingDown, StoreError, UnfitRow
from dethpc.master.experiments.journals import write_log
from dethpc.master.submitting.submit import TRIES_TO_WRITE
from dethpc.master.watching import trouble
from dethpc.master.watching.trouble import TRIES
from dethpc.rundir.files import write_json
from dethpc.rundir.journal import from_line
from tests.master.conftest import T0
from tests.master.reconciler_world import World
from tests.waiting import LONG_ENOUGH

BROKEN, INNOCENT = "1.1.1", "1.2.1"


@pytest.fixture
def training(world: World) -> World:
    """All trials train."""
    world.cycle()
    for id in (BROKEN, INNOCENT, "1.3.1"):
        world.node_starts(id)
    world.cycle()
    return world


def journal_line(world: World, seq: int, data: Any, id: str = BROKEN) -> None:
    """A whole line with a right checksum, whatever it says."""
    text = json.dumps(data)
    with open(world.home.run(id).attempt(0).journal, "a") as file:
        file.write(f"{seq} {len(text)} {zlib.crc32(text.encode(), seq):08x} {text}\n")


def log_of_master(world: World, id: str = BROKEN, k: int = 0) -> str:
    return world.home.run(id).waiting(k).read_text()


def innocent_goes_on(world: World) -> None:
    world.node_reports(INNOCENT, steps=4)
    world.node_ends(INNOCENT)
    world.cycle(2)
    assert world.ended(INNOCENT) and world.ends[INNOCENT, 0] is End.COMPLETED
    world.ledger.do(events.KillTrial(3, T0))
    world.cycle()
    assert world.job("1.3.1").job_id in world.fake.cancelled


METRICS = {"at": T0, "kind": "metrics", "group": "validation", "steps_completed": 1, "metrics": {"loss": 1.0}}
CHECKPOINT = {"at": T0, "kind": "checkpoint", "uuid": "u", "steps_completed": 1}
ODD = {
    "steps beyond 63 bits": {**METRICS, "steps_completed": 2**63},
    "negative steps": {**METRICS, "steps_completed": -1},
    "steps as text": {**METRICS, "steps_completed": "x"},
    "metrics as a list": {**METRICS, "metrics": [1]},
    "no group": {name: value for name, value in METRICS.items() if name != "group"},
    "a group of half characters": {**METRICS, "group": "\ud800"},
    "a time that is none": {**METRICS, "at": float("nan")},
    "checkpoint beyond 63 bits": {**CHECKPOINT, "steps_completed": 2**70},
    "checkpoint without a name": {"at": T0, "kind": "checkpoint", "steps_completed": 1},
    "checkpoint with odd files": {**CHECKPOINT, "resources": {"a": 2**64}},
    "metrics a hundred levels deep": {**METRICS, "metrics": {"loss": 1.0, "x": json.loads("[" * 100 + "]" * 100)}},
    "metadata as a list": {"at": T0, "kind": "run_metadata", "metadata": [1]},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_report_of_an_odd_shape_counts_for_nothing_and_is_told(training: World, odd: dict[str, Any]) -> None:
    journal_line(training, 1, odd)
    journal_line(training, 2, {**METRICS, "steps_completed": 7})
    training.cycle(3)
    assert training.trial(1).steps_completed == 7, "what comes after it counts"
    assert "report 1" in log_of_master(training) and "counts for nothing" in log_of_master(training)
    innocent_goes_on(training)
    training.node_ends(BROKEN)
    training.cycle(2)
    assert training.ends[BROKEN, 0] is End.COMPLETED


names = st.sampled_from(
    [*"kind at group steps_completed metrics batch_metrics uuid metadata resources storage seconds".split()]
    + [*"length metric progress reason status title".split()]
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(2**62, 2**80)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["loss", "validation", "\ud800", "\0", "NaN", "1" * 500]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3) | st.just("loss"), inner, max_size=2)
    ),
    max_leaves=4,
)


@st.composite
def shapes(draw: st.DrawFn) -> dict[str, Any]:
    """Something like a report: of any kind, with odd values for some of its fields, and some of them missing."""
    sound = draw(st.sampled_from([METRICS, CHECKPOINT, *({"at": T0, "kind": kind.value} for kind in ReportKind)]))
    odd = {**sound, **draw(st.dictionaries(names, values, max_size=3))}
    for name in draw(st.lists(names, max_size=1)):
        odd.pop(name, None)
    return odd


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(odd=st.lists(shapes(), min_size=1, max_size=3))
def test_no_shape_of_a_report_stops_what_comes_after_it(training: World, odd: list[dict[str, Any]]) -> None:
    """The real ledger on SQLite, as the reader hands them over: whatever JSON a line holds, it is taken in or passed over."""
    found, before = [], training.ledger.state.attempt(BROKEN, 0)
    assert before is not None
    for data in odd:
        text = json.dumps({**data, "uuid": f"{data['uuid']}-{before.applied_seq}"} if data.get("uuid") == "u" else data)
        seq = before.applied_seq + len(found) + 1
        try:
            found.append(from_line(f"{seq} {len(text)} {zlib.crc32(text.encode(), seq):08x} {text}"))
        except ValueError:
            continue  # no report: a damaged line
    training.ledger.do(events.Reported(BROKEN, 0, found, T0))
    after = training.ledger.state.attempt(BROKEN, 0)
    assert after is not None and after.applied_seq == before.applied_seq + len(found)


def test_a_searcher_metric_beyond_every_float_is_no_number(training: World) -> None:
    journal_line(training, 1, {**METRICS, "metrics": {"loss": 10**400}})
    training.cycle(2)
    assert training.trial(1).steps_completed == 1 and training.trial(1).best_validation is None
    innocent_goes_on(training)


STARTED = {
    "everything a list": {"job_id": [1], "nodes": "n", "prior": [1], "resumed_steps": [], "resumed_from": {}, "at": []},
    "numbers out of range": {"resumed_steps": 2**70, "at": float("inf"), "prior": {"0": 2**70, "x": 1}},
    "half characters": {"job_id": "\ud800", "nodes": ["\ud800"], "resumed_from": "\ud800"},
}


@pytest.mark.parametrize("odd", STARTED.values(), ids=STARTED)
def test_a_start_of_an_odd_shape_is_taken_for_what_it_still_says(training: World, odd: dict[str, Any]) -> None:
    next_attempt = training.home.run(BROKEN).attempt(1)
    next_attempt.make()
    write_json(next_attempt.started, odd)
    training.live.rung(BROKEN, every_attempt=True)
    training.cycle(2)
    assert training.run(BROKEN).attempt == 1
    innocent_goes_on(training)


ENDS = {
    "out of range": {"finished": False, "exit_code": 2**70, "at": float("inf"), "signal": -(2**70), "node": 1.5},
    "half characters": {"finished": False, "message": "\ud800", "phase": "\ud800", "tail": ["\ud800", 1]},
}


@pytest.mark.parametrize("odd", ENDS.values(), ids=ENDS)
def test_an_end_of_an_odd_shape_ends_its_attempt(training: World, odd: dict[str, Any]) -> None:
    training.node_ends(BROKEN, **odd)
    training.fake.end(training.job(BROKEN).job_id, JobState.FAILED, 1)
    training.cycle(2)
    assert training.ended(BROKEN)
    innocent_goes_on(training)


def test_a_claim_damaged_under_a_run_that_ends_before_it_starts_stops_nobody_else_and_then_that_run(
    world: World,
) -> None:
    world.cycle()
    world.node_starts(INNOCENT)
    world.home.run(BROKEN).claim.write_text("")
    world.fake.end(world.job(BROKEN).job_id, JobState.FAILED, 1)
    world.cycle()
    assert not world.ended(BROKEN)
    assert "claim is damaged" in log_of_master(world) and "tries again" in log_of_master(world)
    innocent_goes_on(world)
    world.cycle(TRIES)
    assert world.ended(BROKEN) and "this run ends here" in log_of_master(world)


def test_a_kill_needs_nothing_of_the_directory(training: World) -> None:
    run_dir = training.home.run(BROKEN)
    run_dir.claim.write_text("")
    run_dir.attempt(0).journal.mkdir()
    run_dir.attempt(0).end.mkdir()
    training.ledger.do(events.KillTrial(1, T0))
    training.cycle(3)
    assert training.ended(BROKEN) and training.trial(1).state is State.CANCELED
    assert training.ends[BROKEN, 0] is End.KILLED


def test_a_pipe_in_a_run_directory_keeps_nobody_waiting(training: World) -> None:
    """To open one waits for a writer: all of the master would wait with it."""
    run_dir = training.home.run(BROKEN)
    run_dir.claim.unlink()
    for path in (run_dir.claim, run_dir.attempt(0).end):
        os.mkfifo(path)
    training.node_ends(INNOCENT)
    training.cycle(3)
    assert training.ended(INNOCENT) and not training.ended(BROKEN)
    assert "It is no regular file" in log_of_master(training)
    training.ledger.do(events.KillTrial(1, T0))
    training.cycle(3)
    assert training.ended(BROKEN)


def test_a_pipe_in_the_place_of_a_log_keeps_nobody_who_writes_there_waiting(
    training: World, caplog: pytest.LogCaptureFixture
) -> None:
    """To open one for writing waits for a reader."""
    run, home = training.run(BROKEN), training.home
    log = home.run(BROKEN).waiting(0)
    log.unlink(missing_ok=True)
    os.mkfifo(log)
    trouble.tell(home, run, "it is broken")
    assert "It is no regular file" in caplog.text
    reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    trouble.tell(home, run, "it is broken")
    assert os.read(reader, 100) == b"", "nor does anybody read there what is meant for the log"
    os.close(reader)
    write_log_of = home.run(BROKEN).attempt(0).log(0)
    write_log_of.unlink(missing_ok=True)
    os.mkfifo(write_log_of)
    with pytest.raises(OSError, match="no regular file"):
        write_log(home, BROKEN, 0, ["words"])


def test_a_damaged_claim_keeps_nobody_from_being_submitted(world: World) -> None:
    world.home.run(BROKEN).make()
    world.home.run(BROKEN).claim.write_text("[]")
    world.cycle()
    assert world.run(INNOCENT).state is RunState.PENDING and world.run("1.3.1").state is RunState.PENDING
    assert "claim is damaged" in log_of_master(world)


def test_a_run_that_cannot_be_prepared_lets_the_others_pass_and_is_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = world._job

    def odd(run: Any) -> Any:
        if run.id == BROKEN:
            raise AttributeError("'list' object has no attribute 'get'")
        return prepare(run)

    monkeypatch.setattr(world, "_job", odd)
    world.cycle()
    assert world.run(INNOCENT).state is RunState.PENDING
    world.cycle(TRIES_TO_WRITE)
    assert world.trial(1).state is State.ERROR and "no attribute" in world.trial(1).reason


def test_a_full_database_is_nobodys_own_trouble(training: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it lasts, no run is ended for it."""

    def full() -> None:
        raise StoreError("the database failed: database or disk is full")

    training.node_reports(BROKEN, steps=3)
    training.ledger._store.before_commit = full  # type: ignore[attr-defined]
    for _ in range(2 * TRIES):
        with pytest.raises(StoreError):
            training.cycle()
    training.ledger._store.before_commit = None  # type: ignore[attr-defined]
    training.cycle()
    assert not training.ended(BROKEN) and training.trial(1).steps_completed == 3


def test_the_end_of_the_ledger_is_nobodys_own_trouble(training: World) -> None:
    training.node_ends(BROKEN)
    training.ledger.stop()
    with pytest.raises(ShuttingDown):
        training.cycle()


def test_a_part_of_the_cycle_that_fails_keeps_no_other_from_its_work(
    training: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(training.reconciler._submitter, "submit", fail)
    training.ledger.do(events.KillTrial(1, T0))
    with pytest.raises(ZeroDivisionError):
        training.cycle()
    assert training.job(BROKEN).job_id in training.fake.cancelled


def test_of_events_decided_together_only_the_one_with_an_unfit_row_is_refused(world: World) -> None:
    ledger = world.ledger
    held: list[Any] = []
    ledger.look(
        lambda state: held.extend(ledger.post(each) for each in good_bad_good())
    )  # one batch: all come before it ends
    first, second, third = held
    assert first.result(LONG_ENOUGH) and third.result(30)
    with pytest.raises(UnfitRow):
        second.result(LONG_ENOUGH)
    assert world.run(BROKEN).scheduler_job_id == "7" and world.run("1.3.1").scheduler_job_id == "8"
    assert world.run(INNOCENT).state is RunState.SUBMITTING


def good_bad_good() -> list[events.Event]:
    return [
        events.Submitted(BROKEN, "7", T0),
        events.AttemptStarted(INNOCENT, 0, ["node1"], None, 2**70, T0),
        events.Submitted("1.3.1", "8", T0),
    ]


# --- damaged journals


def flip(world: World, seq: int, id: str = BROKEN, k: int = 0) -> None:
    """One bit of the line of report ``seq``."""
    path = world.home.run(id).attempt(k).journal
    lines = path.read_bytes().splitlines(keepends=True)
    broken = bytearray(lines[seq - 1])
    broken[len(broken) // 2] ^= 1
    lines[seq - 1] = bytes(broken)
    path.write_bytes(b"".join(lines))


def report_steps(world: World, *steps: int) -> None:
    for step in steps:
        world.node_reports(BROKEN, steps=step)


def test_a_damaged_line_costs_itself_alone_once_its_attempt_is_over(training: World) -> None:
    report_steps(training, 1, 2, 3, 4)
    flip(training, 2)
    training.cycle()
    assert training.trial(1).steps_completed == 1, "a live attempt may be writing that line"
    training.node_ends(BROKEN)
    training.cycle(2)
    assert training.ends[BROKEN, 0] is End.COMPLETED
    assert training.trial(1).steps_completed == 4 and training.trial(1).best_validation == 1 / 4
    assert "1 of its reports was damaged" in training.trial(1).reason
    assert "1 reports of attempt 0 are damaged" in log_of_master(training)


@pytest.mark.parametrize("killed", [False, True])
def test_a_damaged_claim_costs_a_run_that_has_started_no_report_that_its_journal_has(
    training: World, killed: bool
) -> None:
    report_steps(training, 1, 2, 3, 4)
    flip(training, 2)
    training.cycle()
    training.home.run(BROKEN).claim.write_text("{")
    if killed:
        training.ledger.do(events.KillTrial(1, T0))
    training.node_ends(BROKEN)
    training.cycle(2)
    assert training.ended(BROKEN) and training.trial(1).best_validation == 1 / 4
    assert killed or training.ends[BROKEN, 0] is End.COMPLETED
    assert "claim is damaged" in log_of_master(training)


def test_damage_at_the_end_of_a_journal_is_counted(training: World) -> None:
    report_steps(training, 1, 2, 3)
    flip(training, 2)
    flip(training, 3)
    training.node_ends(BROKEN)
    training.cycle(2)
    assert training.trial(1).steps_completed == 1 and "2 of its reports were damaged" in training.trial(1).reason


def test_an_attempt_that_follows_takes_over_what_stands_behind_a_damaged_line(training: World) -> None:
    report_steps(training, 1, 2, 3)
    flip(training, 1)
    next_attempt = training.home.run(BROKEN).attempt(1)
    next_attempt.make()
    write_json(next_attempt.started, {"prior": {"0": 3}, "at": T0})
    training.live.rung(BROKEN, every_attempt=True)
    training.cycle()
    ended = training.ledger.state.attempt(BROKEN, 0)
    assert ended is not None and ended.applied_seq == 3 and "1 of its reports" in ended.reason


def cycle_until_it_ends(world: World) -> None:
    for _ in range(300):
        world.cycle()
        if world.ended(BROKEN):
            break
    assert world.ends[BROKEN, 0] is End.COMPLETED


def test_a_long_journal_is_read_by_pieces_between_which_others_have_their_turn(
    training: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dethpc.master.watching.journals.A_LOOK", 1)
    report_steps(training, *range(1, 41))
    training.cycle()
    assert 0 < training.trial(1).steps_completed < 40 and training.live.changed.is_set()
    training.node_ends(BROKEN)
    training.cycle()
    assert not training.ended(BROKEN)
    innocent_goes_on(training)
    cycle_until_it_ends(training)
    assert training.trial(1).steps_completed == 40


def test_a_hole_of_gigabytes_at_the_end_of_a_journal_ends_with_its_run(training: World) -> None:
    report_steps(training, 1, 2)
    journal = training.home.run(BROKEN).attempt(0).journal
    with open(journal, "r+b") as file:
        file.seek(1 << 27)
        file.write(b"\n")
    training.node_ends(BROKEN)
    cycle_until_it_ends(training)
    assert training.trial(1).steps_completed == 2


def test_a_report_of_a_hundred_thousand_metrics_counts_for_nothing_and_is_told(training: World) -> None:
    journal_line(training, 1, {**METRICS, "metrics": {f"m{n}": n for n in range(100_000)}})
    journal_line(training, 2, {**METRICS, "steps_completed": 2})
    training.cycle(2)
    assert training.trial(1).steps_completed == 2 and "100000 metrics" in log_of_master(training)


def test_an_end_report_without_end_is_damaged(training: World) -> None:
    with open(training.home.run(BROKEN).attempt(0).end, "wb") as file:
        file.truncate(1 << 33)
    training.cycle(2)
    assert "too large" in log_of_master(training)
    innocent_goes_on(training)
