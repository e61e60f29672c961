"""One run whose directory is in disorder keeps the others from nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from uuid import UUID

import pytest

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.site import SiteConfig
from dethpc.domain.facts import Run
from dethpc.domain.ports import JobRequest
from dethpc.domain.states import Intent, RunState, State
from dethpc.engine import events
from dethpc.errors import SubmitRejected
from dethpc.master.durable.lease import Lease
from dethpc.master.durable.ledger import Ledger
from dethpc.master.runs.reconcile import TRIES_TO_WRITE, Pace, Reconciler
from dethpc.master.runs.reuse import ReusableJobs
from dethpc.master.site import find_scheduler
from dethpc.rundir.home import Home
from dethpc.searcher.methods import build
from dethpc.state import open_store
from tests.master.conftest import CONFIG, T0


def refuse(runs: Sequence[Run]) -> Mapping[str, JobRequest | SubmitRejected]:
    return {run.id: SubmitRejected("no such partition") for run in runs}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.make()
    return home


@pytest.fixture
def ledger(home: Home) -> Iterator[Ledger]:
    with open_store(home.database_url) as store:
        ledger = Ledger(store, build)
        ledger.start()
        ledger.do(
            events.CreateExperiment("ada", ExperimentConfig.from_json(CONFIG), "", "", 7, str(UUID(int=1)), True, T0)
        )
        yield ledger
        ledger.stop()


@pytest.fixture
def reconciler(home: Home, ledger: Ledger) -> Reconciler:
    lease = Lease(home.master_file, "cluster")
    lease.take()
    scheduler, _ = find_scheduler(home, SiteConfig(scheduler="local"))
    pace = Pace(fastest_poll=0.0, slowest_poll=0.0, rest=0.0)
    return Reconciler(ledger, scheduler, home, lease, refuse, pace, lambda: None, ReusableJobs(home, ()))


def test_a_damaged_claim_stops_its_own_trial_alone(home: Home, ledger: Ledger, reconciler: Reconciler) -> None:
    home.run("1.1.1").make()
    home.run("1.1.1").claim.write_text("{")
    reconciler.cycle()
    first, others = ledger.state.experiments[1].trials[0], ledger.state.experiments[1].trials[1:]
    assert first.state is State.ACTIVE and [trial.reason for trial in others] == ["no such partition"] * 2
    for _ in range(TRIES_TO_WRITE):
        reconciler.cycle()
    known = ledger.state.trial(1)
    assert known is not None and known.state is State.ERROR and "damaged" in known.reason


def test_a_run_whose_directory_is_gone_can_be_killed(ledger: Ledger, reconciler: Reconciler) -> None:
    ledger.do(events.Submitted("1.1.1", "4242", T0))
    ledger.do(events.KillTrial(1, T0))
    assert ledger.state.runs["1.1.1"].intent is Intent.KILL
    while (run := ledger.state.runs.get("1.1.1")) is not None:
        assert run.state is RunState.PENDING
        reconciler.cycle()
    known = ledger.state.trial(1)
    assert known is not None and known.state is State.CANCELED
