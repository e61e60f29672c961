"""Running Slurm's commands, and what SlurmCommands makes of answers that a real Slurm gives seldom or slowly."""

from __future__ import annotations

import inspect
import os
import pwd
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from dethpc.client import Session
from dethpc.domain.ports import LEFT_ITS_ARRAY, ArrayRequest, JobRequest, JobState
from dethpc.errors import ConfigError, Refused, SchedulerUnavailable, SubmitRejected, SubmitUncertain
from dethpc.scheduler.slurm import commands, rows
from dethpc.scheduler.slurm.answers import FIELD
from dethpc.scheduler.slurm.commands import SlurmCommands
from dethpc.scheduler.slurm.runner import Completed, SubprocessRunner
from tests.scheduler.replay import Answer, Replay
from tests.waiting import LONG_ENOUGH, wait_until

ME = pwd.getpwuid(os.geteuid()).pw_name
PYTHON = Path(sys.executable)


def run(code: str, *, timeout: float = LONG_ENOUGH, **options: object) -> Completed:
    runner = SubprocessRunner(str(PYTHON.parent))
    return runner.run([PYTHON.name, "-c", code], env={"A": "1"}, cwd=None, timeout=timeout, **options)  # type: ignore[arg-type]


def squeue_row(job_id: int) -> str:
    cells = [job_id, "RUNNING", "None", "node1", "0:0", 0, "N/A", 1_763_000_000, 1_763_000_001, "N/A", 10, 0, "name"]
    return FIELD.join(map(str, cells)) + FIELD


def squeue(*job_ids: int) -> str:
    return "\n".join([FIELD.join(rows.JOB_FIELDS) + FIELD, *map(squeue_row, job_ids)]) + "\n"


def sacct(fields: Sequence[str], text: str) -> Completed:
    return Completed(0, ("|".join(fields) + "|\n" + text).replace("|", FIELD))


def configuration(text: str) -> Completed:
    return Completed(0, f"Configuration data as of 2026-01-01T00:00:00\n{text}\nSlurmctld(primary) at c is UP\n")


def request(folder: Path) -> JobRequest:
    return JobRequest("1.1.1", "x", folder / "job.sh", folder, 1, env={"MINE": "1"})


def test_a_command_has_the_environment_it_was_given_and_all_its_output_comes_back() -> None:
    done = run("import os, sys; print(sorted(os.environ)); print('oh', file=sys.stderr); sys.exit(3)")
    assert done.returncode == 3 and "'A'" in done.stdout and "HOME" not in done.stdout and done.stderr == "oh\n"


def test_a_command_that_does_not_end_or_does_not_exist_is_told_apart() -> None:
    with pytest.raises(TimeoutError, match="gave no answer in 0.2 s"):
        run("import time; time.sleep(60)", timeout=0.2)
    with pytest.raises(SchedulerUnavailable, match="squeue is not on PATH"):
        SubprocessRunner("/nowhere").run(["squeue"], env={}, cwd=None, timeout=1)


def test_what_a_command_that_does_not_end_has_started_ends_with_it(tmp_path: Path) -> None:
    """Sites put scripts around Slurm's commands: each question to a Slurm that hangs would leave a process behind."""
    told, timeout = tmp_path / "pid", 0.5
    code = (
        "import os, subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
        f"open({str(told)!r} + '.part', 'w').write(str(child.pid)); os.rename({str(told)!r} + '.part', {str(told)!r}); "
        "child.wait()"
    )
    while not told.exists():  # on a busy machine it takes a while to get there
        with pytest.raises(TimeoutError):
            run(code, timeout=timeout)
        timeout *= 2
    child = Path("/proc", told.read_text(), "cmdline")
    wait_until(lambda: not child.exists() or not child.read_bytes())


def test_a_command_runs_as_no_other_user() -> None:
    assert run("", user=ME).returncode == 0
    with pytest.raises(Refused, match=f"was not run as somebody: this master is {ME}'s"):
        run("raise SystemExit('it ran')", user="somebody")


def test_a_cycle_is_one_squeue_however_many_jobs_there_are() -> None:
    slurm = Replay(squeue=Completed(0, squeue(*range(1, 10_001))))
    found = SlurmCommands(runner=slurm).jobs()
    assert len(found) == 10_000 and found["7"].state is JobState.RUNNING
    assert slurm.counts == {"squeue": 1}


def test_many_jobs_are_ended_in_few_commands_and_the_configuration_is_asked_for_once() -> None:
    slurm = Replay(scontrol=configuration("MessageTimeout = 30 sec\n"))
    scheduler = SlurmCommands(runner=slurm)
    scheduler.cancel([str(n) for n in range(3000)])
    assert slurm.counts["scancel"] == 2
    assert sum(len(command.argv) - 1 for command in slurm.commands) == 3000
    assert (scheduler.settle, scheduler.settle, scheduler.has_accounting) == (60, 60, False)
    assert slurm.counts["scontrol"] == 1


def test_a_job_is_submitted_from_its_directory_with_its_environment(tmp_path: Path) -> None:
    slurm = Replay(sbatch=Completed(0, "41;cluster\n"))
    scheduler = SlurmCommands(environment={"PATH": "/bin", "SLURM_CONF": "/etc/s", "SLURM_JOB_ID": "1"}, runner=slurm)
    assert scheduler.submit(request(tmp_path)) == "41"
    (command,) = slurm.commands
    assert command.argv == ("sbatch", "--parsable", str(tmp_path / "job.sh")) and command.cwd == tmp_path
    assert command.env == {"MINE": "1", "SLURM_CONF": "/etc/s"} and command.user is None


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (TimeoutError("sbatch gave no answer in 60 s"), SubmitUncertain),
        (Completed(-9), SubmitUncertain),
        (Completed(0, "nonsense"), SubmitUncertain),
        (
            Completed(1, "", "sbatch: error: Batch job submission failed: Socket timed out on send/recv"),
            SubmitUncertain,
        ),
        (Completed(1, "", "sbatch: error: Unable to contact slurm controller"), SchedulerUnavailable),
        (Completed(1, "", "sbatch: error: invalid partition specified: nowhere"), SubmitRejected),
    ],
)
def test_how_a_submission_failed_decides_whether_it_is_tried_again(
    tmp_path: Path, answer: Answer, error: type[Exception]
) -> None:
    with pytest.raises(error):
        SlurmCommands(runner=Replay(sbatch=answer)).submit(request(tmp_path))


def test_a_question_without_an_answer_is_asked_again_later() -> None:
    silent = SlurmCommands(runner=Replay(squeue=TimeoutError("squeue gave no answer in 60 s")))
    with pytest.raises(SchedulerUnavailable, match="squeue gave no answer in 60 s"):
        silent.jobs()


def test_a_controller_that_is_busy_with_a_job_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "BUSY_PAUSES", (0.0, 0.0))
    busy = Completed(1, "", "Resource temporarily unavailable for job 7\n")
    slurm = Replay(scontrol=[busy, busy, Completed(0)])
    SlurmCommands(runner=slurm).nice({"7": 100})
    assert slurm.counts["scontrol"] == 3
    with pytest.raises(SchedulerUnavailable, match="temporarily unavailable"):
        SlurmCommands(runner=Replay(scontrol=busy)).nice({"7": 100})


def test_a_name_may_have_lines_and_delimiters() -> None:
    listed = squeue(1) + squeue_row(2).replace("name", "a|b\nc") + "\n" + squeue_row(3) + "\n"
    found = SlurmCommands(runner=Replay(squeue=Completed(0, listed))).jobs()
    assert [(id, record.name) for id, record in found.items()] == [("1", "name"), ("2", "a|b\nc"), ("3", "name")]


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        "squeue is switched off until Monday, 12 jobs are running\n",
        squeue(1) + squeue_row(2)[:20],
        squeue(1)[:-2],
        squeue()[:20],
        squeue(1) + "slurm_load_jobs: what?\n" + squeue_row(2),
    ],
    ids=["empty", "other words", "half a row", "no end", "half a header", "words between rows"],
)
def test_an_answer_that_is_damaged_or_cut_off_is_no_answer(damaged: str) -> None:
    with pytest.raises(SchedulerUnavailable, match="cannot be read|cut off|is empty"):
        SlurmCommands(runner=Replay(squeue=Completed(0, damaged))).jobs()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("3", [3]),
        ("[0-3,7]", [0, 1, 2, 3, 7]),
        ("0-8:4%2", [0, 4, 8]),
        ("[1-2,5,...]", [1, 2, 5]),
        ("N/A", []),
        ("", []),
        ("9-1", []),
    ],
)
def test_waiting_elements_of_an_array_are_read_as_slurm_writes_them(text: str, found: list[int]) -> None:
    assert rows.elements(text) == found


def test_elements_that_share_a_row_are_jobs_of_their_own() -> None:
    listed = "57_2|RUNNING|0:0|n1|1|2|Unknown|x|\n57_[3-4]|PENDING|0:0||1|Unknown|Unknown|x|\n"
    config = configuration("AccountingStorageType = accounting_storage/slurmdbd\n")
    shown = "JobId=57 ArrayJobId=57 ArrayTaskId=5-6 JobName=x JobState=PENDING Reason=Priority\n"

    def scontrol(argv: Sequence[str]) -> Completed:
        return config if "config" in argv else Completed(0, shown)

    slurm = Replay(sacct=sacct(rows.ACCOUNT_FIELDS, listed), scontrol=scontrol)
    scheduler = SlurmCommands(runner=slurm)
    found = scheduler._accounts("--jobs=57_2,57_3,57_4")
    assert {id: record.state for id, record in found.items()} == {
        "57_2": JobState.RUNNING,
        "57_3": JobState.PENDING,
        "57_4": JobState.PENDING,
    }
    known = scheduler._shown(["57_6", "57_9", "58_1"])
    assert {id: (record.state, record.name) for id, record in known.items()} == {
        "57_6": (JobState.PENDING, "x"),
        "57_9": (JobState.CANCELLED, "x"),  # its array is there without it
    }


def test_an_element_is_found_by_its_own_number_while_slurm_shows_it_and_in_accounting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = {
        "58": "JobId=58 ArrayJobId=57 ArrayTaskId=2 JobName=x JobState=RUNNING\n",
        # The last one has the array's number, and those that wait share a line of that number.
        "57": "JobId=57 ArrayJobId=57 ArrayTaskId=3 JobName=x JobState=RUNNING\n"
        "JobId=58 ArrayJobId=57 ArrayTaskId=2 JobName=x JobState=RUNNING\n",
        "60": "JobId=60 ArrayJobId=60 ArrayTaskId=0-2 JobName=x JobState=PENDING Reason=Priority\n",
        "70": "JobId=70 JobName=x JobState=RUNNING\n",
    }

    def scontrol(argv: Sequence[str]) -> Completed:
        gone = Completed(1, "", "slurm_load_jobs error: Invalid job id specified\n")
        return Completed(0, shown[argv[-1]]) if argv[-1] in shown else gone

    def accounts(argv: Sequence[str]) -> Completed:
        kept = {"--jobs=40": "40|39_4|\n", "--jobs=41": "41|41|\n"}
        return sacct(["JobIDRaw", "JobID"], kept.get(argv[-1], ""))

    monkeypatch.setattr(SlurmCommands, "has_accounting", True)
    scheduler = SlurmCommands(runner=Replay(scontrol=scontrol, sacct=accounts))
    found = {number: scheduler.element(number) for number in ("58", "57", "60", "70", "40", "41", "42")}
    assert found == {"58": "57_2", "57": "57_3", "60": None, "70": None, "40": "39_4", "41": None, "42": None}
    monkeypatch.setattr(SlurmCommands, "has_accounting", False)
    assert scheduler.element("40") is None


def test_an_element_that_was_cancelled_while_it_waited_is_missing_from_its_array() -> None:
    """Slurm 22.05 keeps no record of it, and says so on its standard output."""
    shown = "JobId=2 ArrayJobId=2 ArrayTaskId=0-2 JobName=x JobState=PENDING Reason=Priority\n"

    def scontrol(argv: Sequence[str]) -> Completed:
        if "config" in argv:
            return configuration("AccountingStorageType = accounting_storage/none\n")
        return Completed(1, "Job 2_3 not found\n") if argv[-1] == "2_3" else Completed(0, shown)

    (record,) = SlurmCommands(runner=Replay(scontrol=scontrol)).records(["2_3"]).values()
    assert (record.job_id, record.name, record.state, record.reason) == ("2_3", "x", JobState.CANCELLED, LEFT_ITS_ARRAY)


@pytest.mark.parametrize(
    ("config", "largest"),
    [
        ("MaxArraySize = 1001\n", 1001),
        ("MaxArraySize = 1001\nSchedulerParameters = a=1,max_array_tasks=50\n", 50),
        ("MaxArraySize = 0\n", 0),
        ("Other = 1\n", 0),
    ],
)
def test_an_array_is_as_large_as_the_site_lets_it_be(config: str, largest: int) -> None:
    assert SlurmCommands(runner=Replay(scontrol=configuration(config))).largest_array == largest


def test_an_array_is_one_sbatch_and_its_jobs_have_ids_of_their_own(tmp_path: Path) -> None:
    slurm = Replay(sbatch=Completed(0, "57;cluster\n"))
    array = ArrayRequest("x", tmp_path / "array.sbatch", tmp_path, [request(tmp_path)] * 3)
    assert SlurmCommands(runner=slurm).submit_array(array) == ["57_0", "57_1", "57_2"]
    (command,) = slurm.commands
    assert command.argv == ("sbatch", "--parsable", "--array=0-2", str(tmp_path / "array.sbatch"))
    assert command.env["MINE"] == "1"


def test_what_a_person_waits_for_is_given_up_before_the_person_gives_up_on_the_master() -> None:
    """Else a Slurm that hangs looks like a master that does not answer."""

    class Hangs:
        waited = 0.0

        def run(
            self,
            argv: Sequence[str],
            *,
            env: Mapping[str, str],
            cwd: Path | None,
            timeout: float,
            user: str | None = None,
        ) -> Completed:
            self.waited = timeout
            raise TimeoutError(f"{argv[0]} gave no answer")

    runner = Hangs()
    scheduler = SlurmCommands(runner=runner)
    patience = inspect.signature(Session).parameters["timeout"].default
    for ask in (scheduler.pools, scheduler.nodes, partial(scheduler.queue, "main")):
        with pytest.raises(SchedulerUnavailable, match="gave no answer"):
            ask()
        assert 0 < runner.waited < patience


def test_what_chooses_the_cluster_and_says_who_one_is_reaches_every_command(tmp_path: Path) -> None:
    chosen = {"SLURM_CONF": "/etc/s", "SLURM_CLUSTERS": "other", "SLURM_JWT": "secret", "SLURM_CONF_SERVER": "c:1"}
    slurm = Replay(
        sbatch=Completed(0, "41;other\n"), squeue=Completed(0, squeue(1)), sacct=sacct(rows.ACCOUNT_FIELDS, "")
    )
    scheduler = SlurmCommands(environment={"PATH": "/bin", "SLURM_JOB_ID": "1", **chosen}, runner=slurm)
    assert scheduler.submit(request(tmp_path)) == "41"
    scheduler.jobs()
    scheduler._accounts("--jobs=1")
    for command in slurm.commands:
        assert {name: command.env.get(name) for name in chosen} == chosen and "SLURM_JOB_ID" not in command.env
    assert "--clusters=other" in slurm.commands[-1].argv, "sacct does not follow SLURM_CLUSTERS"
    plain = SlurmCommands(environment={"PATH": "/bin"}, runner=slurm)
    shell = JobRequest("1.1.1", "x", tmp_path / "job.sh", tmp_path, 1, env={"SLURM_CLUSTERS": "other"})
    plain.submit(shell)
    assert "SLURM_CLUSTERS" not in slurm.commands[-1].env, "the cluster is the master's"


@pytest.mark.parametrize("several", ["a,b", "all"])
def test_several_clusters_are_refused_in_words(several: str) -> None:
    with pytest.raises(ConfigError, match="SLURM_CLUSTERS.*the name of one cluster"):
        SlurmCommands(environment={"SLURM_CLUSTERS": several})


def test_a_token_that_has_expired_is_told_with_what_to_do(tmp_path: Path) -> None:
    sbatch = Completed(1, "", "sbatch: error: Batch job submission failed: Protocol authentication error\n")
    squeue = Completed(1, "", "slurm_load_jobs error: Protocol authentication error\n")
    with_token = SlurmCommands(environment={"SLURM_JWT": "x"}, runner=Replay(sbatch=sbatch, squeue=squeue))
    for ask in (with_token.jobs, partial(with_token.submit, request(tmp_path))):
        with pytest.raises(SchedulerUnavailable, match="token in SLURM_JWT may have expired"):
            ask()
    with pytest.raises(SchedulerUnavailable) as munge:
        SlurmCommands(environment={}, runner=Replay(squeue=squeue)).jobs()
    assert "SLURM_JWT" not in str(munge.value)
