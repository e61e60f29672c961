"""The store: one writer thread, a pool of readers, SQLite or PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Connection, func, or_, select
from sqlalchemy.exc import SQLAlchemyError

from dethpc.domain.facts import (
    Attempt,
    Checkpoint,
    Experiment,
    Metric,
    NodeHealth,
    PoolState,
    Row,
    Run,
    SearchNote,
    Trial,
)
from dethpc.domain.ports import Snapshot
from dethpc.domain.states import RunState, State
from dethpc.errors import StoreError
from dethpc.state import engines, migrate, rows
from dethpc.state.summaries import Summary
from dethpc.state.writer import Writer

Result = TypeVar("Result")

_TRIALS_AT_ONCE = 500
_TERMINAL = [state for state in State if state.terminal]
_LIVE_RUN = [state for state in RunState if state is not RunState.ENDED]


def open_store(url: str | os.PathLike[str]) -> SqlStore:
    """Open the database, making or migrating it when needed.

    ``url`` is the path of an SQLite file, ``sqlite:///PATH`` or ``postgresql://USER@HOST/DATABASE``. Raises: StoreError, also
    when a newer release wrote the database.
    """
    return SqlStore(str(url))


class SqlStore:
    """``domain.ports.Store`` on SQL. Every method may be called from any thread."""

    def __init__(self, url: str) -> None:
        self._write_engine, self._read_engine = engines.connect(url)
        try:
            with _as_store_error(), self._write_engine.begin() as connection:
                migrate.upgrade(connection)
            self._writer = Writer(self._write_engine)
        except BaseException:
            self._dispose()
            raise

    @property
    def before_commit(self) -> Callable[[], None] | None:
        """Called in the writer thread just before each commit; a DethpcError that it raises undoes the commit and reaches
        everyone who waits for it."""
        return self._writer.before_commit

    @before_commit.setter
    def before_commit(self, check: Callable[[], None] | None) -> None:
        self._writer.before_commit = check

    def commit(self, rows: Sequence[Row]) -> None:
        """See ``ports.Store.commit``. What an attempt's ``void_after`` voided stays void."""
        self.begin(rows).result()

    def begin(self, rows: Sequence[Row]) -> Future[None]:
        """As ``commit``, without waiting: commits that wait together share a transaction. The rows must not change."""
        return self._writer.submit(rows)

    def write(self, work: Callable[[Connection], Result]) -> Result:
        """Run ``work`` in a transaction of the writer and return its result; its exceptions undo the transaction.

        For what no fact describes, such as tokens. ``work`` may run again when a shared transaction failed.
        """
        future: Future[Result] = self._writer.submit(work)
        return future.result()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A read-only connection that sees one committed state throughout. Give it back soon."""
        with _as_store_error(), self._read_engine.begin() as connection:
            yield connection

    def load(self) -> Snapshot:
        """Rows of every experiment that has not ended, or of which a run has not."""
        experiment, trial = rows.table(Experiment), rows.table(Trial)
        unfinished = select(rows.table(Run).c.experiment_id).where(rows.table(Run).c.state.in_(_LIVE_RUN))
        wanted = select(experiment.c.id).where(
            or_(experiment.c.state.not_in(_TERMINAL), experiment.c.id.in_(unfinished))
        )
        with self.read() as connection:
            ids = list(connection.scalars(wanted))

            def of_live(fact: type[Result]) -> list[Result]:
                columns = rows.table(fact).c
                if "experiment_id" in columns:
                    return rows.read(connection, fact, columns.experiment_id.in_(ids))
                return rows.read(
                    connection, fact, columns.trial_id.in_(select(trial.c.id).where(trial.c.experiment_id.in_(ids)))
                )

            return Snapshot(
                experiments=rows.read(connection, Experiment, experiment.c.id.in_(ids)),
                trials=of_live(Trial),
                runs=of_live(Run),
                attempts=of_live(Attempt),
                checkpoints=of_live(Checkpoint),
                notes=of_live(SearchNote),
                next_experiment_id=(connection.scalar(select(func.max(experiment.c.id))) or 0) + 1,
                next_trial_id=(connection.scalar(select(func.max(trial.c.id))) or 0) + 1,
                pools=rows.read(connection, PoolState),
                nodes=rows.read(connection, NodeHealth),
            )

    def metrics(
        self,
        trial_ids: Sequence[int],
        group: str | None = None,
        *,
        after_steps: int = -1,
        limit: int | None = None,
    ) -> Iterator[Metric]:
        """See ``ports.Store.metrics``. Trials come in ascending order. The iterator holds a connection until it ends."""
        columns = rows.table(Metric).c
        left = limit
        ids = sorted(set(trial_ids))
        with self.read() as connection:
            for start in range(0, len(ids), _TRIALS_AT_ONCE):
                found = rows.query(
                    Metric,
                    columns.trial_id.in_(ids[start : start + _TRIALS_AT_ONCE]),
                    columns.steps_completed > after_steps,
                    *([] if group is None else [columns.group == group]),
                )
                ordered = found.order_by(columns.trial_id, columns.id).limit(left)
                for row in connection.execution_options(yield_per=1000).execute(ordered):
                    if left is not None:
                        left -= 1
                    yield Metric(*row)
                if left == 0:
                    return

    def summaries(self, trial_ids: Iterable[int]) -> list[Summary]:
        """Metric summaries, by trial, group and name."""
        ids = sorted(set(trial_ids))
        with self.read() as connection:
            return [
                summary
                for start in range(0, len(ids), _TRIALS_AT_ONCE)
                for summary in rows.read(
                    connection,
                    Summary,
                    rows.table(Summary).c.trial_id.in_(ids[start : start + _TRIALS_AT_ONCE]),
                )
            ]

    def close(self) -> None:
        """Finish waiting commits and close. May be called again."""
        self._writer.close()
        self._dispose()

    def __enter__(self) -> SqlStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _dispose(self) -> None:
        self._read_engine.dispose()
        self._write_engine.dispose()  # last: SQLite folds its log into the file when the last connection goes


@contextmanager
def _as_store_error() -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        raise StoreError(f"the database failed: {error}") from error
