"""The fake keeps the scheduler's contract, as far as nothing has to run for it."""

from __future__ import annotations

import pytest

from dethpc.domain.ports import Scheduler
from tests.master.fake_scheduler import FakeScheduler
from tests.scheduler.contract import SchedulerContract


class TestFakeScheduler(SchedulerContract):
    all_slots = 4

    @pytest.fixture
    def scheduler(self) -> Scheduler:
        return FakeScheduler(slots=self.all_slots)

    # Its jobs are no processes.
    test_a_job_runs_to_its_end = None
    test_a_death_by_signal_is_told_from_an_exit_code = None
    test_the_job_has_the_environment_it_was_given_and_no_other = None
    test_cancel_ends_a_running_job_with_a_warning_first = None
    test_cancel_kills_what_does_not_listen = None
    test_requeue_starts_the_same_job_once_more = None
