"""What every store must do, whatever its database."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, event, inspect, text

from dethpc.domain import facts
from dethpc.domain.ports import Store
from dethpc.domain.records import DeliveryState, Token, TokenKind, User, WebhookDelivery
from dethpc.domain.states import CheckpointState, Intent, RunState, State
from dethpc.errors import LeaseHeld, StoreError
from dethpc.state import SqlStore, engines, migrate, open_store, rows, tables
from dethpc.state import queries as lists
from dethpc.state.queries import records as queries
from tests.state import spent
from tests.state.factories import attempt, checkpoint, experiment, metric, note, run, trial
from tests.state.reading import metrics, summaries
from tests.state.writes_until_killed import AT_ONCE
from tests.waiting import LONG_ENOUGH

ROOT = Path(__file__).parents[2]


def seqs(store: SqlStore, *trials: int) -> list[int]:
    return [found.seq for found in metrics(store, trials or [1])]


def assert_whole(store: SqlStore, acknowledged: Mapping[int, int]) -> None:
    """All that ``writes_until_killed`` acknowledged, by trial, is there, and nothing by half."""
    applied = {int(a.task_id.partition(".")[2]): a.applied_seq for a in store.load().of(facts.Attempt)}
    for trial_id, done in acknowledged.items():
        stored = seqs(store, trial_id)
        assert len(stored) >= done and len(stored) % AT_ONCE == 0
        assert stored == list(range(1, len(stored) + 1))
        assert applied.get(trial_id, 0) == len(stored) == sum(s.count for s in summaries(store, [trial_id]))


def histories(store: SqlStore) -> dict[int, list[tuple[int, float, float]]]:
    with store.read() as connection:
        return {id: lists.validation_history(connection, id) for id in (1, 2)}


def assert_histories(store: SqlStore) -> None:
    """What lists read is what could be made again from all reports."""
    with store.read() as connection:
        of = {id: lists.experiment(connection, id) for id in (1, 2)}
        names = {id: lists.metric_names(connection, [id]) for id in (1, 2)}
        reports = connection.execute(
            rows.query(facts.Metric).order_by(rows.table(facts.Metric).c.reported_at, rows.table(facts.Metric).c.id)
        ).all()
    expected: dict[int, list[tuple[int, float, float]]] = {1: [], 2: []}
    reported: dict[int, set[tuple[str, str]]] = {1: set(), 2: set()}
    for each in (facts.Metric(*row) for row in reports):
        reported[each.experiment_id] |= {(each.group, name) for name in each.metrics}
        value, best = each.metrics.get(of[each.experiment_id].metric), expected[each.experiment_id]
        if each.group != "validation" or not isinstance(value, (int, float)) or not math.isfinite(value):
            continue
        sign = 1 if of[each.experiment_id].smaller_is_better else -1
        if not best or sign * value < sign * best[-1][2]:
            best.append((each.trial_id, each.reported_at, float(value)))
    assert histories(store) == expected
    assert names == {id: sorted(found) for id, found in reported.items()}


def _without_histories(connection: Connection) -> None:
    """A database as the release before histories, and policies, left it."""
    _without_sums(connection)
    for table in ("validation_history", "metric_names"):
        connection.execute(text(f"DROP TABLE {table}"))
    connection.execute(text("DROP INDEX ix_checkpoints_experiment_id_size"))
    connection.execute(text("DROP INDEX ix_search_notes_experiment_id_trial_index"))
    connection.execute(text("ALTER TABLE checkpoints DROP COLUMN size"))
    connection.execute(text("ALTER TABLE trials DROP COLUMN image"))
    for table, column in (("experiments", "collect"), ("checkpoints", "removing")):
        connection.execute(text(f"DROP INDEX ix_{table}_{column}"))
        connection.execute(text(f"ALTER TABLE {table} DROP COLUMN {column}"))
    connection.execute(text("UPDATE alembic_version SET version_num = 'fourth'"))


def _without_sums(connection: Connection) -> None:
    """A database as the release before they were kept left it."""
    _without_kept(connection)
    for table in ("spent_slots", "spent_slots_of_experiments", "checkpoints_of_experiments"):
        connection.execute(text(f"DROP TABLE {table}"))
    connection.execute(text("DROP INDEX ix_trials_experiment_id_external_id"))
    connection.execute(text("CREATE INDEX ix_checkpoints_experiment_id_size ON checkpoints (experiment_id, size)"))
    connection.execute(text("UPDATE alembic_version SET version_num = 'seventh'"))


def _without_kept(connection: Connection) -> None:
    """A database as the release before deleted checkpoints were counted apart left it."""
    connection.execute(text("DROP INDEX ix_experiments_project_id_state_created_at"))
    connection.execute(text("DROP TABLE model_versions"))
    connection.execute(text("ALTER TABLE runs DROP COLUMN scheduler"))
    connection.execute(text("ALTER TABLE users DROP COLUMN agent"))
    connection.execute(text("ALTER TABLE experiments DROP COLUMN ended_seconds"))
    connection.execute(text("DROP INDEX ix_experiments_user_id_id"))
    connection.execute(text("CREATE INDEX ix_experiments_owner_id ON experiments (owner, id)"))
    for table in ("experiments", "tasks"):
        connection.execute(text(f"ALTER TABLE {table} DROP COLUMN user_id"))
    connection.execute(text("ALTER TABLE checkpoints_of_experiments DROP COLUMN kept"))
    for names in ("latest_validation", "steps_completed", "restarts", "started_at_ended_at_ended_seconds", "ended_at"):
        connection.execute(text(f"DROP INDEX ix_trials_experiment_id_{names}"))
    connection.execute(text("ALTER TABLE trials DROP COLUMN ended_seconds"))
    connection.execute(text("DROP INDEX ix_checkpoints_trial_id_steps_completed_state_size"))
    index = "ix_checkpoints_trial_id_steps_completed ON checkpoints (trial_id, steps_completed)"
    connection.execute(text(f"CREATE INDEX {index}"))
    connection.execute(text("DROP INDEX ix_spent_slots_ended_at"))
    connection.execute(text("UPDATE alembic_version SET version_num = 'eighth'"))


def _checkpoints(store: SqlStore) -> list[tuple[int, int, int]]:
    """Of each experiment: how many are not deleted, the bytes of all, and how many a list says there are."""
    with store.read() as connection:
        figures = lists.experiment_figures(connection, [1, 2])
        page = lists.Order("end_time"), lists.Page(0, 1)
        wanted = {id: lists.CheckpointFilter(experiment_id=id) for id in (1, 2)}
        total = {id: lists.list_checkpoints(connection, wanted[id], *page)[1] for id in (1, 2)}
        assert lists.list_checkpoints(connection, lists.CheckpointFilter(), *page)[1] == sum(total.values())
        return [(figures[id].checkpoints, figures[id].checkpoint_bytes, total[id]) for id in (1, 2)]


def _checkpoints_of(rows: Iterable[facts.Checkpoint]) -> list[tuple[int, int, int]]:
    own = {id: [each for each in rows if each.experiment_id == id] for id in (1, 2)}
    kept = {id: [each for each in own[id] if each.state is not CheckpointState.DELETED] for id in (1, 2)}
    return [(len(kept[id]), sum(each.size for each in own[id]), len(own[id])) for id in (1, 2)]


class RecordContract:
    """What every store does with records. Subclasses give the fixture ``any_store``, the methods ``users`` and ``deliveries``."""

    def users(self, store: Any) -> list[User]:
        raise NotImplementedError

    def deliveries(self, store: Any) -> list[WebhookDelivery]:
        raise NotImplementedError

    def test_a_record_takes_the_place_of_the_one_with_its_key(self, any_store: Store) -> None:
        ada, grace = User(1, "ada", 1.5, 1.5), User(2, "grace", 2.5, 2.5, password="$argon2")
        any_store.put(grace)
        any_store.put(ada)
        any_store.put(replace(grace, active=False))
        assert sorted(self.users(any_store), key=lambda user: user.id) == [ada, replace(grace, active=False)]

    def test_a_record_is_dropped_by_its_key_and_may_be_missing(self, any_store: Store) -> None:
        any_store.put(User(1, "ada", 1.5, 1.5))
        any_store.put(User(2, "grace", 2.5, 2.5))
        any_store.drop(User(1, "renamed", 9.0, 9.0))
        any_store.drop(User(1, "ada", 1.5, 1.5))
        assert [user.username for user in self.users(any_store)] == ["grace"]

    def test_a_delivery_is_committed_along_with_rows_and_written_once(self, any_store: Store) -> None:
        delivery = WebhookDelivery("e-1", 1, 1.5, {"event_id": "e-1"})
        sent = replace(delivery, state=DeliveryState.DELIVERED, attempts=1)
        any_store.commit([facts.NodeHealth("n1"), delivery])
        any_store.put(sent)
        any_store.commit([delivery])
        assert self.deliveries(any_store) == [sent]

    def test_no_snapshot_holds_records(self, any_store: Store) -> None:
        any_store.put(User(1, "ada", 1.5, 1.5))
        assert not any(any_store.load().rows.values())


class StoreContract(RecordContract):
    """Subclasses give the fixtures ``url`` (an empty database), ``store`` (open) and ``another_url``."""

    @pytest.fixture
    def any_store(self, store: SqlStore) -> SqlStore:
        return store

    def users(self, store: SqlStore) -> list[User]:
        with store.read() as connection:
            return queries.find(connection, User)

    def deliveries(self, store: SqlStore) -> list[WebhookDelivery]:
        with store.read() as connection:
            return queries.find(connection, WebhookDelivery)

    def test_an_empty_store_loads_nothing_and_counts_from_one(self, store: SqlStore) -> None:
        snapshot = store.load()
        assert not any(
            (
                snapshot.of(facts.Experiment),
                snapshot.of(facts.Trial),
                snapshot.of(facts.Run),
                snapshot.of(facts.Attempt),
                snapshot.of(facts.SearchNote),
            )
        )
        assert (snapshot.next_experiment_id, snapshot.next_trial_id) == (1, 1)

    def test_every_field_comes_back_as_it_was(self, store: SqlStore, url: str) -> None:
        strange = "naïve ☃ 'quotes' \"double\" \n\t $(id) 🙂"
        kept = [
            experiment(
                config={strange: [1, 2.5, None, True, {"n": math.inf}]},
                notes=strange,
                labels=[strange],
                archived=True,
                weight=0.1 + 0.2,
                max_slots=3,
                seed=2**63 - 1,
            ),
            trial(hparams={"a": {"b": []}}, best_validation=-math.inf, started_at=1e-300, latest_checkpoint="c-1"),
            run(intent=Intent.STOP, nodes=["a", "b"], exit_code=-9, scheduler_job_id="77"),
            attempt(applied_offset=2**40, void_after=0),
            checkpoint(metadata={"x": 1}, resources={"a/b": 2**50}, storage={"type": "shared_fs"}),
            note(),
        ]
        store.commit(kept)
        for store_ in (store, open_store(url)):
            found = store_.load()
            assert [
                *found.of(facts.Experiment),
                *found.of(facts.Trial),
                *found.of(facts.Run),
                *found.of(facts.Attempt),
                *found.of(facts.Checkpoint),
                *found.of(facts.SearchNote),
            ] == kept
            store_.close()

    def test_what_rows_hold_alike_is_one_value_once_they_are_loaded(self, store: SqlStore) -> None:
        kept = [trial(n, search={"lengths": [4, 16]}, reason="not among the best") for n in (1, 2)]
        store.commit([experiment(), *kept, run(reason="not among the best"), attempt()])
        found = store.load()
        one, other = found.of(facts.Trial)
        (its_run,), (its_attempt,) = found.of(facts.Run), found.of(facts.Attempt)
        assert [one, other] == kept and one.search is other.search and one.search is not one.hparams
        assert one.reason is other.reason is its_run.reason and its_run.task_id is its_attempt.task_id
        assert store.load().of(facts.Trial)[0].search is not one.search, "who reads again gets values of their own"

    def test_nan_comes_back_as_nan_and_sorts_last(self, store: SqlStore) -> None:
        store.commit([experiment(), *(trial(n, best_validation=v) for n, v in enumerate((math.nan, 2.0, math.inf), 1))])
        store.commit([metric(1, metrics={"loss": math.nan, "bound": -math.inf})])
        column = rows.table(facts.Trial).c
        with store.read() as connection:
            ordered = connection.execute(
                rows.query(facts.Trial).with_only_columns(column.id).order_by(column.best_validation)
            )
            assert [id for (id,) in ordered] == [2, 3, 1]
        assert math.isnan(store.load().of(facts.Trial)[0].best_validation or 0.0)
        found = metrics(store, [1])[0]
        assert math.isnan(found.metrics["loss"]) and found.metrics["bound"] == -math.inf

    def test_text_that_no_database_holds_is_replaced_and_stops_nobody(self, store: SqlStore) -> None:
        store.commit([experiment(reason="a\0b\ud800c"), trial(hparams={"a": "\0\ud800"})])
        found = store.load()
        assert found.of(facts.Experiment)[0].reason == "a\ufffdb\ufffdc"
        assert found.of(facts.Trial)[0].hparams == {"a": "\0\ud800"}

    def test_a_row_takes_the_place_of_the_one_with_its_key_and_the_last_of_a_commit_counts(
        self, store: SqlStore
    ) -> None:
        store.commit([experiment(name="first"), experiment(2), experiment(name="second")])
        assert [e.name for e in store.load().of(facts.Experiment)] == ["second", ""]
        store.commit([experiment(name="third"), trial(), trial(restarts=2)])
        assert [e.name for e in store.load().of(facts.Experiment)] == ["third", ""]
        assert [t.restarts for t in store.load().of(facts.Trial)] == [2]

    def test_metrics_and_notes_are_only_added(self, store: SqlStore) -> None:
        store.commit([metric(1, metrics={"loss": 1.0}), note(1)])
        store.commit(
            [metric(1, metrics={"loss": 9.0}), metric(2, metrics={"loss": 3.0}), metric(2), note(1, more=1), note(2)]
        )
        assert [m.metrics for m in metrics(store, [1])] == [{"loss": 1.0}, {"loss": 3.0}]
        (summary,) = summaries(store, [1])
        assert (summary.count, summary.sum, summary.last) == (2, 4.0, 3.0)
        store.commit([experiment()])
        assert store.load().of(facts.SearchNote) == [note(1), note(2)]

    def test_load_leaves_ended_experiments_out_until_a_run_of_theirs_has_ended_too(self, store: SqlStore) -> None:
        ended = [experiment(1, State.CANCELED), trial(1), run(), attempt(), checkpoint(), note()]
        live = [
            experiment(2, State.PAUSED),
            trial(2, 2),
            run("2.2.1", 2, 2, state=RunState.ENDED),
            attempt("2.2.1", 0, 2, experiment_id=2),
        ]
        store.commit([*ended, *live, experiment(5, State.ERROR), trial(9, 5)])
        found = store.load()
        assert [e.id for e in found.of(facts.Experiment)] == [1, 2]
        assert [r.id for r in found.of(facts.Run)] == ["1.1.1", "2.2.1"]
        store.commit([run(state=RunState.ENDED)])
        found = store.load()
        assert [
            *found.of(facts.Experiment),
            *found.of(facts.Trial),
            *found.of(facts.Run),
            *found.of(facts.Attempt),
        ] == live
        assert found.of(facts.Checkpoint) == found.of(facts.SearchNote) == []
        assert (found.next_experiment_id, found.next_trial_id) == (6, 10)

    def test_reports_are_taken_in_by_few_statements_which_read_no_summary_again(self, store: SqlStore) -> None:
        def commit(first: int, count: int) -> list[str]:
            asked: list[str] = []
            engine = store._write_engine
            listener = lambda c, cursor, statement, *more: asked.append(statement)  # noqa: E731
            event.listen(engine, "before_cursor_execute", listener)
            store.commit([*(metric(n) for n in range(first, first + count)), attempt(applied_seq=first + count - 1)])
            event.remove(engine, "before_cursor_execute", listener)
            return asked

        def read(asked: list[str]) -> list[str]:
            return [statement for statement in asked if "SELECT" in statement and "metric_summaries" in statement]

        assert len(read(commit(1, 5))) == 1
        few, many = commit(6, 5), commit(11, 500)
        assert read(few) == read(many) == []
        assert not any("metric_names" in statement or "SELECT attempts" in statement for statement in few)
        assert len(many) <= len(few) + 8, "a report has statements of its own"
        assert summaries(store, [1])[0].count == len(seqs(store)) == 510

    def test_what_a_failed_commit_made_of_summaries_is_forgotten(self, store: SqlStore) -> None:
        store.commit([metric(1), metric(1, "1.2.1", trial_id=2)])

        def lost() -> None:
            raise LeaseHeld("another master")

        store.before_commit = lost
        with pytest.raises(LeaseHeld):
            store.commit([metric(2)])
        store.before_commit = None
        store.commit([metric(2), metric(2, "1.2.1", trial_id=2)])
        assert [(s.count, s.sum) for s in summaries(store, [1, 2])] == [(2, 1.5), (2, 1.5)]

    def test_a_trial_that_has_ended_leaves_no_summaries_in_memory(self, store: SqlStore) -> None:
        store.commit([metric(1), metric(1, "1.2.1", trial_id=2)])
        assert len(store._writer._recent) == 2
        store.commit([metric(2), trial(state=State.COMPLETED)])
        assert len(store._writer._recent) == 1
        store.commit([metric(3), trial(state=State.ACTIVE)])
        assert summaries(store, [1])[0].count == 3

    def test_metrics_come_by_trial_and_in_order_of_report(self, store: SqlStore) -> None:
        store.commit([metric(n, "1.1.10", trial_id=2) for n in (1, 2, 3)])
        store.commit([metric(1), metric(2, group="validation"), metric(3)])
        store.commit([metric(1, "1.1.2", k=1, steps_completed=5)])
        assert [(m.trial_id, m.run_id, m.seq) for m in metrics(store, [2, 1])] == [
            (1, "1.1.1", 1),
            (1, "1.1.1", 2),
            (1, "1.1.1", 3),
            (1, "1.1.2", 1),
            (2, "1.1.10", 1),
            (2, "1.1.10", 2),
            (2, "1.1.10", 3),
        ]

    def test_voided_metrics_leave_every_answer_and_come_no_more(self, store: SqlStore) -> None:
        store.commit(
            [*(metric(n) for n in range(1, 7)), *(metric(n, k=1) for n in (1, 2)), metric(9, "1.2.1", trial_id=2)]
        )
        store.commit([attempt(void_after=3)])
        assert seqs(store) == [1, 2, 3, 1, 2]
        (summary,) = summaries(store, [1])
        assert (summary.count, summary.last_steps, summary.min) == (5, 30, 1 / 3)
        store.commit([metric(3), metric(4), metric(5, k=1)])
        store.commit([metric(7), attempt(void_after=3, applied_seq=7)])
        store.commit([metric(8, "1.3.1"), attempt("1.3.1", void_after=0), metric(9, "1.3.1")])
        assert seqs(store) == [1, 2, 3, 1, 2, 5]
        assert summaries(store, [1])[0].count == 6
        assert seqs(store, 2) == [9]

    def test_the_history_of_best_validations_is_what_all_reports_give_in_whatever_order_they_come(
        self, store: SqlStore, url: str
    ) -> None:
        """Late, twice, of the same instant, voided, with values that cannot be compared; and where a migration made it."""
        draw = random.Random(4)
        store.commit([experiment(1, metric="loss"), experiment(2, metric="acc", smaller_is_better=False)])
        store.commit([trial(n, 1 + n % 2) for n in range(1, 7)])
        seq, runs = dict.fromkeys(range(1, 7), 0), dict.fromkeys(range(1, 7), 1)
        said: list[facts.Metric] = []
        for turn in range(80):
            n = draw.randint(1, 6)
            of = 1 + n % 2
            if draw.random() < 0.1 and seq[n]:
                over = f"{of}.{n}.{runs[n]}"
                store.commit([attempt(over, 0, n, experiment_id=of, void_after=draw.randint(0, seq[n]))])
                seq[n], runs[n] = 0, runs[n] + 1
            run_id = f"{of}.{n}.{runs[n]}"
            reports = []
            for _ in range(draw.randint(1, 3)):
                seq[n] += 1
                better = draw.random() * (turn + 1) ** (1 if of == 2 else -1)
                value = draw.choice([better, better, draw.randint(0, 3), math.nan, math.inf, "NaN", None])
                name, group = draw.choice(["loss", "acc", f"m{seq[n]}"]), draw.choice(["validation", "training"])
                told = {"group": group, "metrics": {name: value}, "trial_id": n, "run_id": run_id}
                reports.append(
                    replace(metric(seq[n], **told), experiment_id=of, reported_at=float(turn + draw.randint(0, 20)))
                )
            said += reports
            store.commit(reports + draw.sample(said, 1))
            assert_histories(store)
        assert all(len(history) > 1 for history in histories(store).values()), histories(store)
        before = histories(store)
        store.write(_without_histories)
        with open_store(url) as migrated:
            assert histories(migrated) == before
            assert_histories(migrated)

    @pytest.mark.parametrize("seed", range(3))
    def test_where_slots_went_is_at_any_time_what_all_runs_and_attempts_say(
        self, seed: int, store: SqlStore, url: str
    ) -> None:
        draw, rows_by_key = random.Random(seed), dict[tuple[Any, ...], Any]()
        store.commit(spent.begun())
        waiting: list[Any] = []
        for some in spent.history(draw):
            waiting += some
            rows_by_key.update({(type(row), *facts.key(row)): row for row in some})
            if draw.random() < 0.5:
                store.commit(waiting)
                waiting = draw.sample(list(rows_by_key.values()), 1)  # which comes once more
                assert spent.kept(store) == spent.made_anew(rows_by_key)
        store.commit(list(rows_by_key.values()))
        assert spent.kept(store) == spent.made_anew(rows_by_key)
        store.write(_without_sums)
        with open_store(url) as migrated:
            assert spent.kept(migrated) == spent.made_anew(rows_by_key)

    def test_sums_over_checkpoints_are_at_any_time_what_all_of_them_say(self, store: SqlStore, url: str) -> None:
        draw, latest = random.Random(1), dict[str, facts.Checkpoint]()
        store.commit([experiment(1), experiment(2)])
        for _ in range(30):
            some = [
                replace(
                    checkpoint(f"c-{n}", 1 + n % 2, resources={"a": draw.randint(0, 9)}, reason=str(draw.random())),
                    state=draw.choice(list(CheckpointState)),
                )
                for n in draw.choices(range(20), k=draw.randint(1, 5))
            ]
            latest.update({each.uuid: each for each in some})
            store.commit(some)
            assert _checkpoints(store) == _checkpoints_of(latest.values())
        with store.read() as connection:  # all of them are of one trial
            assert lists.trial_figures(connection, [trial(1)])[1].checkpoints == sum(
                each.state is not CheckpointState.DELETED for each in latest.values()
            )
        store.write(_without_kept)
        with open_store(url) as migrated:
            assert _checkpoints(migrated) == _checkpoints_of(latest.values())
            migrated.write(_without_sums)
        with open_store(url) as migrated:
            assert _checkpoints(migrated) == _checkpoints_of(latest.values())

    def test_of_two_validations_at_a_step_each_checkpoint_has_the_one_of_its_own_weights(self, store: SqlStore) -> None:
        def validated(seq: int, value: float) -> facts.Metric:
            return replace(metric(seq, group="validation", metrics={"loss": value}), steps_completed=30)

        first = replace(checkpoint("c-1"), seq=2, reported_at=7.6)
        second = replace(checkpoint("c-2"), seq=4, reported_at=9.6)
        store.commit([experiment(1), trial(1), validated(1, 0.1), first, validated(3, 0.9), second])
        with store.read() as connection:
            by_value = lists.list_checkpoints(
                connection, lists.CheckpointFilter(experiment_id=1, metric="loss"), lists.Order(), lists.Page(0, None)
            )[0]
            origins = lists.checkpoint_origins(connection, by_value)
        assert [found.uuid for found in by_value] == ["c-1", "c-2"]
        assert {uuid: origin.validation for uuid, origin in origins.items()} == {
            "c-1": {"loss": 0.1},
            "c-2": {"loss": 0.9},
        }

    def test_summaries_tell_types_apart(self, store: SqlStore) -> None:
        values = {
            "n": 2,
            "b": True,
            "s": "x",
            "z": None,
            "l": [1],
            "o": {"a": 1},
            "mixed": 1,
            "nan": math.nan,
            "big": 10**400,
        }
        store.commit([metric(1, metrics=values)])
        store.commit([metric(2, metrics={**values, "n": 0.5, "mixed": "a", "nan": 3, "late": 1}, steps_completed=4)])
        found = {s.name: s for s in summaries(store, [1])}
        assert {name: s.type for name, s in found.items()} == {
            "n": "number", "b": "boolean", "s": "string", "z": "null", "l": "array", "o": "object", "mixed": "string",
            "nan": "number", "big": "number", "late": "number",
        }  # fmt: skip
        assert (found["n"].sum, found["n"].min, found["n"].max, found["n"].mean) == (2.5, 0.5, 2.0, 1.25)
        assert found["n"].last == 2  # ten steps are more than four, though four came later
        assert (found["nan"].min, found["nan"].max) == (3.0, 3.0) and math.isnan(found["nan"].sum or 0)
        assert found["mixed"].sum is None and found["mixed"].count == 2
        assert found["big"].max == math.inf

    def test_a_commit_that_fails_halfway_leaves_nothing(self, store: SqlStore) -> None:
        store.commit([experiment(name="before")])
        with pytest.raises(StoreError):
            store.commit([experiment(name="after"), trial(), metric(1), metric(2, metrics={"loss": object()})])
        with pytest.raises(StoreError):
            store.commit([experiment(name="after"), object()])  # type: ignore[list-item]
        with pytest.raises(StoreError):
            store.commit([experiment(name="after"), replace(trial(), state="NONSENSE")])  # type: ignore[arg-type]
        assert store.load().of(facts.Experiment) == [experiment(name="before")]
        assert store.load().of(facts.Trial) == [] and seqs(store) == [] and summaries(store, [1]) == []
        store.commit([trial()])
        assert store.load().of(facts.Trial) == [trial()]

    def test_commits_that_wait_together_share_a_transaction_and_each_has_its_own_end(self, store: SqlStore) -> None:
        entered, go, commits = threading.Event(), threading.Event(), []

        def check() -> None:
            commits.append(1)
            entered.set()
            go.wait(LONG_ENOUGH)

        store.before_commit = check
        first = store.begin([experiment()])
        assert entered.wait(LONG_ENOUGH)
        good = [store.begin([trial(n), metric(n, f"1.{n}.1", trial_id=n)]) for n in range(1, 101)]
        go.set()
        for future in (first, *good):
            future.result(LONG_ENOUGH)
        assert len(commits) == 2

        entered.clear(), go.clear()
        first = store.begin([experiment(2)])
        assert entered.wait(LONG_ENOUGH)
        futures: list[Future[None]] = [
            store.begin([trial(n, restarts=1), *([note(0, x={1})] * (n == 7))]) for n in range(1, 11)
        ]
        go.set()
        failed = [n for n, future in enumerate(futures, 1) if future.exception(30)]
        assert failed == [7]
        assert isinstance(futures[6].exception(), StoreError)
        assert [t.restarts for t in store.load().of(facts.Trial)[:11]] == [1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 0]

    def test_order_of_commits_is_the_order_of_submission(self, store: SqlStore) -> None:
        futures = [store.begin([experiment(name=str(n))]) for n in range(500)]
        futures[-1].result(LONG_ENOUGH)
        assert store.load().of(facts.Experiment)[0].name == "499"

    def test_many_threads_commit_and_read_at_once(self, store: SqlStore) -> None:
        def work(trial_id: int) -> None:
            for n in range(1, 21):
                store.commit([trial(trial_id, restarts=n), metric(n, f"1.{trial_id}.1", trial_id=trial_id)])
                assert len(seqs(store, trial_id)) == n

        store.commit([experiment()])
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(1, 17)))
        assert {t.restarts for t in store.load().of(facts.Trial)} == {20} and len(store.load().of(facts.Trial)) == 16
        assert {s.count for s in summaries(store, range(1, 17))} == {20}

    def test_what_the_check_before_a_commit_raises_undoes_it(self, store: SqlStore) -> None:
        def lost() -> None:
            raise LeaseHeld("another master has the lease")

        store.before_commit = lost
        with pytest.raises(LeaseHeld):
            store.commit([experiment()])
        store.before_commit = None
        assert store.load().of(facts.Experiment) == []
        store.commit([experiment()])
        assert len(store.load().of(facts.Experiment)) == 1

    def test_a_store_is_opened_behind_a_commit_that_has_looked_at_its_lease(self, store: SqlStore, url: str) -> None:
        """Its master may have been frozen there, and another has taken over."""
        looked, thawed, opened = threading.Event(), threading.Event(), threading.Event()

        def look() -> None:
            looked.set()
            thawed.wait(LONG_ENOUGH)

        def take_over() -> list[Any]:
            with open_store(url) as later:
                opened.set()
                return later.load().of(facts.Experiment)

        store.before_commit = look
        first = store.begin([experiment()])
        assert looked.wait(LONG_ENOUGH)
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(take_over)
            assert not opened.wait(1)
            thawed.set()
            first.result(LONG_ENOUGH)
            assert found.result(LONG_ENOUGH) == [experiment()]

    def test_a_readers_view_does_not_change_under_it_and_it_cannot_write(self, store: SqlStore) -> None:
        store.commit([experiment(), trial()])
        with store.read() as connection:
            before = rows.read(connection, facts.Trial)
            store.commit([trial(restarts=5), trial(2)])
            assert rows.read(connection, facts.Trial) == before == [trial()]
        assert [t.restarts for t in store.load().of(facts.Trial)] == [5, 0]
        with pytest.raises(StoreError), store.read() as connection:
            rows.write(connection, [trial(3)])
        assert len(store.load().of(facts.Trial)) == 2

    def test_other_writes_share_the_writer(self, store: SqlStore) -> None:
        table = rows.table(User)

        def add(connection: Connection) -> int:
            connection.execute(table.insert(), asdict(User(7, "ada", 1.0, 1.0)))
            return 42

        assert store.write(add) == 42
        with pytest.raises(StoreError):
            store.write(add)  # the key is there already
        with pytest.raises(ZeroDivisionError):
            store.write(lambda connection: 1 // 0)

    def test_a_closed_store_says_so(self, store: SqlStore) -> None:
        last = store.begin([experiment()])
        store.close()
        store.close()
        assert last.result(0) is None
        with pytest.raises(StoreError, match="closed"):
            store.commit([experiment()])

    def test_what_was_acknowledged_survives_kill_9_and_nothing_is_there_by_half(self, url: str) -> None:
        random_ = random.Random(5)
        for _ in range(4):
            writer = subprocess.Popen(
                [sys.executable, "-m", "tests.state.writes_until_killed", url],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                text=True,
            )
            assert writer.stdout is not None
            with writer, writer.stdout as lines:
                acknowledged = dict.fromkeys((1, 2, 3), 0)
                stop = random_.randint(1, 60)
                for n, line in enumerate(lines):
                    trial_id, done = map(int, line.split())
                    acknowledged[trial_id] = done
                    if n == stop:
                        writer.send_signal(signal.SIGKILL)
            with open_store(url) as store:
                assert_whole(store, acknowledged)

    def test_an_error_never_shows_what_a_row_holds(self, store: SqlStore) -> None:
        with pytest.raises(StoreError, match="nowhere") as raised:
            store.write(lambda c: c.execute(text("SELECT * FROM nowhere WHERE name = :name"), {"name": "hunter2"}))
        assert "hunter2" not in str(raised.value)

    def test_all_migrations_together_make_what_a_new_database_is(self, store: SqlStore, another_url: str) -> None:
        writer, reader = engines.connect(another_url)
        with writer.begin() as migrated, store.read() as fresh:
            migrate.run_migrations(migrated, None)
            migrate.upgrade(migrated)  # what came without a migration
            assert _schema(fresh) == _schema(migrated)
            assert migrate.revision(fresh) == migrate.revision(migrated)
            context = MigrationContext.configure(migrated, opts={"compare_type": True, "compare_server_default": True})
            assert compare_metadata(context, tables.metadata) == []
        writer.dispose()
        reader.dispose()

    def test_a_database_of_before_the_first_release_is_to_be_rebuilt(self, store: SqlStore, url: str) -> None:
        store.write(lambda connection: connection.execute(text("UPDATE alembic_version SET version_num = '0005'")))
        store.close()
        with pytest.raises(StoreError, match="det master rebuild"):
            open_store(url)

    def test_a_database_of_a_newer_release_is_refused_and_left_alone(self, store: SqlStore, url: str) -> None:
        store.commit([experiment()])
        store.write(lambda connection: connection.execute(text("UPDATE alembic_version SET version_num = '9999'")))
        store.close()
        with pytest.raises(StoreError, match=r"newer release of dethpc \(schema 9999"):
            open_store(url)

    def test_a_value_of_a_newer_release_is_told_in_words(self, store: SqlStore, url: str) -> None:
        store.put(Token(1, 1, TokenKind.ACCESS, "digest", 1.5))
        store.write(lambda connection: connection.execute(text("UPDATE tokens SET kind = 'ROBOT_TOKEN'")))
        with (
            pytest.raises(StoreError, match="'ROBOT_TOKEN'.*a newer release of dethpc wrote it"),
            store.read() as reads,
        ):
            queries.find(reads, Token)


def _schema(connection: Connection) -> dict[str, object]:
    inspector = inspect(connection)
    return {
        table: (
            [(c["name"], str(c["type"]), c["nullable"], c["default"]) for c in inspector.get_columns(table)],
            inspector.get_pk_constraint(table),
            inspector.get_unique_constraints(table),
            sorted((i["name"] or "", tuple(i["column_names"]), i["unique"]) for i in inspector.get_indexes(table)),
        )
        for table in inspector.get_table_names()
    }
