"""One node's part of an attempt, from the first look at the run directory to the end report."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Sequence, Union

from dethpc import storage
from dethpc.domain import workdir
from dethpc.domain.entrypoint import BatchScript, batch_script, filled, is_trial_class
from dethpc.domain.ids import AttemptId, scratch_name
from dethpc.domain.reports import ReportKind
from dethpc.domain.secrets import hide
from dethpc.domain.trial_config import WORKDIR
from dethpc.errors import DethpcError, RendezvousError, RunDirError
from dethpc.exec import end, pip_shim, slurm
from dethpc.exec import resume as resuming
from dethpc.exec.end import NodeResult
from dethpc.exec.log_policies import LogPolicies
from dethpc.exec.notifier import Notifier
from dethpc.exec.place import Place, scratch_bases, with_nodes
from dethpc.exec.setup import environment, hook, mounts, unpack, venv
from dethpc.exec.setup.shell_state import ShellState
from dethpc.exec.setup.workdir import WorkdirLink
from dethpc.exec.single_node import Meeting, SingleNode, Start
from dethpc.exec.supervision import processes
from dethpc.exec.supervision.signals import AskedSignal, Signals, Term, job_end
from dethpc.exec.supervision.supervise import Supervisor, Watch
from dethpc.exec.supervision.tee import Log
from dethpc.exec.usage import Meter
from dethpc.rundir import scratch
from dethpc.rundir.claim import claim, claimed_by
from dethpc.rundir.files import create_once, read_json, sealed, write_json
from dethpc.rundir.filesystem import FULL
from dethpc.rundir.home import Home
from dethpc.rundir.journal import JournalWriter
from dethpc.rundir.layout import RunDir
from dethpc.rundir.spec import Spec
from dethpc.rundir.tree import remove
from dethpc.storage.variables import of_stores

if TYPE_CHECKING:
    from dethpc.exec.rendezvous import Team

ON_FIRST_NODE = ("notebook", "shell", "tensorboard")
"""Kinds of tasks that one program serves, on the first node of those that the task has."""

LEAD_SECONDS = 60.0


def run(run_dir: RunDir, umask: int) -> int:
    """Run this node's part, user code under ``umask``. The exit code is the entrypoint's, 128 + n after signal n, 1 when
    it never came to that."""
    if run_dir.closed.exists():
        return _nothing_to_do()
    try:
        spec = with_nodes(read_spec(run_dir), os.environ)
        _restore_slurms_variables(spec)
        place = Place.from_environment(os.environ, spec.num_nodes)
        if (
            place.rank == 0
            and place.job_id
            and claimed_by(run_dir) != place.job_id
            and not claim(run_dir, place.job_id)
        ):
            sys.stderr.write(
                f"dethpc: job {claimed_by(run_dir)} already trains this run; job {place.job_id} has nothing to do\n"
            )
            return 0
        attempt = run_dir.attempt(place.k)
        attempt.make()
        os.environ.update(of_stores(spec.environment))  # this process, too, looks into the storage and writes to it
        resume = resuming.find(run_dir, place.k, spec)
        if place.rank == 0 and not _begin(run_dir, place, resume):
            return _nothing_to_do()
    except (DethpcError, OSError) as error:
        sys.stderr.write(f"dethpc: the attempt cannot start: {error}\n")
        return 1
    processes.adopt_orphans()
    processes.dump_no_core()
    with Signals(attempt, spec.grace, os.environ) as signals, contextlib.closing(Log(attempt.log(place.rank))) as log:
        with contextlib.closing(
            Supervisor(
                log,
                signals,
                Watch(run_dir, place.k, signals, stop_at(os.environ)),
                Meter(attempt.usage(place.rank), os.environ),
            )
        ) as supervisor:
            start = Start(run_dir, spec, place, resume)
            outcome = _Node(start, umask, log, supervisor, signals).attempt_it()
    return 1 if outcome.exit_code is None else outcome.exit_code


def _restore_slurms_variables(spec: Spec) -> None:
    """An sbatch script is a batch script, and one process on one node is what it would start there."""
    on_the_first = os.environ.get("SLURM_NODEID", "0") == "0"
    alone = spec.num_nodes == 1 or (batch_script(spec.entrypoint) is not None and on_the_first)
    plain = environment.restored(os.environ, task=not alone)
    os.environ.clear()
    os.environ.update(plain)


def _nothing_to_do() -> int:
    sys.stderr.write("dethpc: the run is closed; nothing to do\n")
    return 0


def read_spec(run_dir: RunDir) -> Spec:
    """With the trial's hyperparameters in its entrypoint. Raises: RunDirError when there is none or it is damaged."""
    obj = read_json(run_dir.spec)
    if obj is None:
        raise RunDirError(f"{run_dir.spec} is missing")
    spec = Spec.from_json(obj)
    return spec._replace(entrypoint=filled(spec.entrypoint, spec.hparams))


def rendezvous_timeout(spec: Spec) -> float:
    """Seconds that the nodes wait for each other: the experiment's own ``DETHPC_RENDEZVOUS_TIMEOUT``, else the spec's."""
    try:
        return float(spec.environment.get("DETHPC_RENDEZVOUS_TIMEOUT") or spec.rendezvous_timeout)
    except ValueError:
        return spec.rendezvous_timeout


def _begin(run_dir: RunDir, place: Place, resume: resuming.Resume) -> bool:
    """Say that the attempt has started. False: a master that saw no start has closed the run, and it goes on in another."""
    attempt = run_dir.attempt(place.k)
    started = {
        "at": time.time(),
        "job_id": place.job_id,
        "nodes": place.names,
        "addresses": place.addresses,
        **resume.to_json(),
    }
    if not create_once(attempt.started, sealed(started)):
        raise RunDirError(f"attempt {place.k} has already been started; each start needs its own number")
    if resume.missing:
        with JournalWriter(attempt.journal) as journal:
            for uuid in resume.missing:
                why = f"checkpoint {uuid} is missing, while an earlier one of the trial is there"
                journal.append(ReportKind.CHECKPOINT_DAMAGED, {"uuid": uuid, "why": why})
    return not run_dir.closed.exists()


class _Node:
    def __init__(self, start: Start, umask: int, log: Log, supervisor: Supervisor, signals: Signals) -> None:
        self._at_start, self._signals = start, signals
        run_dir, spec, place, resume = start
        self._notifier = Notifier(spec, AttemptId(spec.run, place.k))
        self._run, self._spec, self._place, self._resume = run_dir, spec, place, resume
        self._attempt = run_dir.attempt(place.k)
        self._log, self._supervisor = log, supervisor
        self._slots = environment.slots_here(spec, place.rank)
        self._umask = umask
        self._scratch = self._directory = ""
        self._sockets = ""
        self._shell: Optional[ShellState] = None
        self._relay: Optional[subprocess.Popen[bytes]] = None
        self._workdir = WorkdirLink()
        self._script = batch_script(spec.entrypoint)
        matched = self._attempt.matched(place.rank)
        self._policies = LogPolicies(spec.settings.log_policies, place.name, matched, log.note)
        log.judge = self._policies.judge

    def attempt_it(self) -> NodeResult:
        team: Optional[Team] = None
        try:
            team = self._team()
            outcome = self._train(team)
            if WORKDIR in outcome.message and not self._workdir.made:
                outcome = outcome._replace(message=f"{outcome.message}; {workdir.ABSENT}")
        except RendezvousError as error:
            self._log.say("ERROR", f"dethpc: {error}")
            outcome = NodeResult("rendezvous", message=str(error), tail=list(self._log.tail), node=self._place.rank)
        finally:
            self._clean_up()
        if self._place.rank == 0:
            if self._attempt.ack.exists():
                self._supervisor.watch.look_at_clock()  # core may have seen it a moment earlier, and left
            self._log.flush()
            end.write_report(self._attempt, outcome, self._log)
            self._notifier.attempt_ended()
        if team is not None:
            team.close()  # only now: the other nodes take it as leave to go
        return outcome

    def _team(self) -> Team:
        spec, place = self._spec, self._place
        if spec.num_nodes == 1:
            return SingleNode(place, self._slots, self._resume, self._supervisor)
        from dethpc.exec.rendezvous import Chief, Peer, Rendezvous
        from dethpc.rundir.secret import Secret

        attempt = f"{spec.run}.{place.k}"
        secret = Secret(spec.among_workers, f"rendezvous {attempt}")
        rendezvous = Rendezvous(attempt, secret, rendezvous_timeout(spec))
        if place.rank == 0:
            return Chief(place, self._slots, self._resume, self._supervisor, rendezvous)
        over = self._attempt.end.exists
        return Peer(place, self._slots, self._resume, self._supervisor, rendezvous, over)

    def _train(self, team: Team) -> NodeResult:
        met = team.meet(self._prepare())
        if isinstance(met, NodeResult):
            return met
        if met.early:
            return team.settle(NodeResult("train", 0, message="asked to stop before training began", early=True))
        mine = self._entrypoint(met, team)
        self._clean_up()  # before the others hear of it: srun may kill this task as soon as another one has failed
        return team.settle(mine)

    def _clean_up(self) -> None:
        """Leave no process and no working directory on this node, and say what it used. Doing it twice does no harm."""
        self._supervisor.end_all()
        if self._relay is not None and self._relay.stdin is not None:
            self._relay.stdin.close()
            self._relay.poll()  # the supervisor has collected it
        self._supervisor.meter.write()
        self._policies.write()
        self._workdir.remove()
        for folder in filter(None, (self._scratch, self._sockets)):
            remove(folder)
        if self._spec.trial_dir:
            with contextlib.suppress(OSError):  # it holds something, or another node of the trial has removed it
                os.rmdir(self._spec.trial_dir)
        self._scratch = self._sockets = ""

    def _prepare(self) -> Optional[NodeResult]:
        """Unpack the context and run the hook; how it failed, or None."""
        if self._resume.away:  # before slots wait for a hook
            return self._failed("storage", self._resume.away)
        if not_set_up := os.environ.get("DETHPC_SETUP_FAILED"):  # the batch script was told so, and has no log
            return self._failed("setup", hide(not_set_up, ("environment", "setup")))
        spec, place = self._spec, self._place
        name = scratch_name(spec.cluster_id, AttemptId(spec.run, place.k), place.rank)
        try:
            self._scratch = unpack.scratch_with_context(
                name, self._bases(), str(self._attempt.path), spec.context, spec.context_sha256
            )
            self._directory = os.path.join(self._scratch, unpack.WORK)
            self._sockets = str(scratch.for_sockets(Path(self._scratch), name))
            if spec.trial_dir:
                os.makedirs(spec.trial_dir, 0o700, exist_ok=True)
            mounts.link(spec.mounts, self._directory, self._log)
            self._workdir.make(spec, self._directory, self._log)
        except (RunDirError, OSError) as error:
            full = isinstance(error, OSError) and error.errno in FULL  # everywhere, the run directory included
            return self._failed("storage" if full else "unpack", f"the context cannot be unpacked: {error}")
        try:
            outcome = self._hook(self._environment(self._resume))
        except (OSError, RunDirError) as error:
            return self._failed("hook", f"{hook.NAME} cannot be started: {error}")
        if isinstance(outcome, NodeResult):
            return outcome
        self._shell = outcome
        return None

    def _hook(self, env: dict[str, str]) -> hook.Outcome:
        own = self._spec.venv or self._spec.venv_at_need
        if self._spec.venv or venv.in_need(own):
            return self._hook_in_own(own, env)
        if not own or not self._spec.det_prefix:
            return self._run_hook(env)
        with venv.Request(self._sockets, self._supervisor) as request:
            pip_shim.ask(env, self._spec.det_prefix, request.pipe)
            outcome = self._run_hook(env, lambda: request.packages)
        if not request.packages or isinstance(outcome, NodeResult):
            return outcome
        self._log.say(
            "INFO",
            f"dethpc: {hook.NAME} would install {request.packages} into {self._spec.det_prefix}, which serves det; the experiment "
            f"gets a Python environment of its own, and {hook.NAME} begins anew in it",
        )
        self._supervisor.end_all()
        self._unpack_anew()
        return self._hook_in_own(own, self._environment(self._resume))

    def _hook_in_own(self, folder: str, env: Mapping[str, str]) -> hook.Outcome:
        """In the experiment's own Python environment. Raises: RunDirError, OSError."""
        name = f"{self._spec.run}.{self._place.k}-{self._place.rank}"
        return venv.run_hook(folder, name, env, self._run_hook, self._supervisor, self._log)

    def _run_hook(self, env: Mapping[str, str], interrupted: Callable[[], object] = lambda: False) -> hook.Outcome:
        return hook.run(self._directory, env, self._umask, self._supervisor, self._log, interrupted)

    def _unpack_anew(self) -> None:
        """Raises: RunDirError, OSError."""
        remove(self._directory)
        os.mkdir(self._directory, 0o700)
        unpack.unpack(self._spec.context, self._directory)
        mounts.link(self._spec.mounts, self._directory, self._log)

    def _bases(self) -> list[str]:
        """Where the working directory may be. The tasks that an sbatch script starts on other nodes begin in that of its own."""
        if self._script is not None and self._place.rank == 0 and self._spec.num_nodes > 1:
            return []
        return scratch_bases(os.environ)

    def _entrypoint(self, meeting: Meeting, team: Team) -> NodeResult:
        if self._place.rank > 0 and (self._script is not None or self._spec.kind in ON_FIRST_NODE):
            return NodeResult("train", 0)  # the program runs on the first node alone, and reaches this one by srun
        info = self._attempt.info(self._place.rank)
        try:
            env = self._environment_of_entrypoint(meeting, str(info))
        except (OSError, RunDirError) as error:
            return self._failed("train", f"the experiment's Python environment cannot be used: {error}")
        if unfit := self._storage_is_unfit(self._spec.storage_worked or meeting.resume.checkpoint is not None):
            return unfit
        if self._script is None:
            argv = command(self._spec.entrypoint, self._spec.slots, env)
        else:
            argv = interpreted(self._directory, self._script)
            if "SLURM_JOB_NAME" in env and "SLURM_JOB_NAME" not in self._spec.environment:
                env["SLURM_JOB_NAME"] = os.path.basename(self._script.path)  # as sbatch names the job of a script
        try:
            cluster_info = self._cluster_info(meeting)
            self._supervisor.meter_gpus(cluster_info["resources"]["gpu_uuids"])
            write_json(info, cluster_info)
        except OSError as error:
            phase = "storage" if error.errno in FULL else "train"
            return self._failed(phase, f"the run directory cannot be written: {error}")
        try:
            if self._spec.services and self._place.rank == 0:
                env = self._start_relay(env)
            child = self._start(argv, env)
        except OSError as error:
            outcome = end.of_start("train", error, argv, self._log)
        else:
            if self._place.rank == 0:
                self._notifier.training_began()
            status = self._supervisor.wait_for(child, team.end_now, self._passes_on(child.pid))
            if self._supervisor.outlived and not status and not self._place.rank and not self._attempt.ack.exists():
                status = signal.SIGTERM  # what the shell that it ended had still to do has not been done
            outcome = end.of_process("train", status, self._spec.entrypoint, env, self._log)
            failure = self._failure()
            if failure and not outcome.good:
                where = f" on {self._place.name}" if self._spec.num_nodes > 1 else ""
                outcome = end.of_worker(failure, outcome.exit_code or 1, where, self._log)
                self._log.say("ERROR", f"dethpc: the entrypoint failed: {outcome.message}")
            elif self._supervisor.ended_because:
                outcome = outcome._replace(message=self._supervisor.ended_because)
            elif not outcome.good:
                self._log.say("ERROR", f"dethpc: the entrypoint failed: {outcome.message}")
        # Workers that outlive the entrypoint would keep the slots busy.
        self._supervisor.end_all()
        return outcome._replace(node=self._place.rank)

    def _environment_of_entrypoint(self, meeting: Meeting, info: str) -> dict[str, str]:
        """Raises: RunDirError when the experiment's Python environment is gone; OSError."""
        env = {**self._environment(meeting.resume), "DETHPC_INFO": info}
        path = venv.in_use(self._spec.venv) if self._spec.venv else venv.ready(self._spec.venv_at_need)
        if path:
            env = venv.activate(env, path)
        if self._shell is not None:
            env = self._shell.over(env)
        if path:
            venv.keep_pip_out(env, path)
        return env

    def _start_relay(self, env: Mapping[str, str]) -> dict[str, str]:
        """Start what the proxy reaches; the environment of the user's program, which names its socket. Raises: OSError."""
        from dethpc.exec import relay  # and its cryptography, which a trial that serves nothing does without

        path = os.path.join(self._sockets, relay.SOCKET)
        env = {**env, "DETHPC_SERVICE_SOCKET": path}
        order = relay.Order(
            secret=self._spec.among_workers,
            use=relay.use(self._spec.run, self._place.k),
            services=self._spec.services,
            file=str(self._attempt.relay),
            host="" if slurm.job_id() else "127.0.0.1",
            socket=path,
            directory=self._directory,
            environment=env,
        )
        self._relay = relay.start(order)
        self._supervisor.relay = self._relay.pid
        return env

    def _start(self, argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """The entrypoint, where the hook has left off. Raises: OSError."""
        shell, own = self._shell, self._spec.work_dir
        if shell is None:
            return processes.start(argv, cwd=own or self._directory, env=env, umask=self._umask)
        directory = own or shell.directory or self._directory
        return processes.start(shell.limited(argv), cwd=directory, env=env, umask=shell.umask)

    def _passes_on(self, entrypoint: int) -> Callable[[], None]:
        """What sends user code the signals that it would get without dethpc, when called now and then."""
        script = self._script is not None
        signal_sender = AskedSignal(os.environ, script, self._place.rank, self._log)
        term = Term(self._attempt, self._signals, script, self._log)
        signal_sender.entrypoint = term.entrypoint = entrypoint

        def look() -> None:
            signal_sender.look()
            term.look()

        return look

    def _storage_is_unfit(self, worked: bool) -> Optional[NodeResult]:
        """How this node cannot write checkpoints, or None: better told now than after hours of training. One that ``worked`` before
        may be away: what is saved meanwhile waits for it. For room in one that is full, the trial waits without its slots."""
        section = self._spec.checkpoint_storage
        if not section:
            return None
        self._log.note("INFO", "Validating checkpoint storage ...")  # Determined's words, which scripts look for
        try:
            store = storage.build(section)
            with store.mark():
                full = store.full()
            return self._failed("storage", full) if full else None
        except (OSError, DethpcError) as error:
            if isinstance(error, OSError) and error.errno in FULL:
                return self._failed("storage", f"{store}: {error.strerror}")
            refused = isinstance(error, PermissionError) and store.may_be_away
            if worked and isinstance(error, OSError) and (refused or store.may_come_back(error)):
                self._log.say("WARNING", f"dethpc: the training begins while its storage is away: {error}")
                return None
            return self._failed("train", f"Checkpoint storage validation failed: {error}")

    def _failure(self) -> Optional[dict[str, Any]]:
        """What a launcher noted of the first failure here, unless that was the end that we made ourselves."""
        with contextlib.suppress(OSError, RunDirError):
            failure = read_json(self._attempt.failure(self._place.rank))
            if failure and float(failure.get("at") or 0.0) <= (self._supervisor.ended_at or time.time()):
                return failure
        return None

    def _environment(self, resume: resuming.Resume) -> dict[str, str]:
        return environment.for_user(self._spec, self._place, resume, self._master(), self._directory, os.environ)

    def _cluster_info(self, meeting: Meeting) -> dict[str, Any]:
        return environment.cluster_info(
            self._at_start,
            meeting,
            self._master(),
            stop_at(os.environ),
            os.environ,
            {"scratch": self._scratch, "sockets": self._sockets, "spool": str(self._spec.spool)},
        )

    def _master(self) -> environment.Master:
        """It may have moved since the run was submitted."""
        with contextlib.suppress(OSError, RunDirError):
            master = read_json(self._spec.master_file)
            if master and master.get("url"):
                home = Home(Path(self._spec.master_file).parent)
                own = home.made_certificate(str(master.get("certificate")))
                return environment.Master(str(master["url"]), str(home.certificate) if own else None)
        return environment.Master(self._spec.master_url or "")

    def _failed(self, phase: str, message: str) -> NodeResult:
        self._log.say("ERROR", f"dethpc: {message}")
        return NodeResult(phase, 1, None, message, list(self._log.tail), self._place.rank)


def command(
    entrypoint: Union[str, Sequence[str]], slots: int = 0, env: Optional[Mapping[str, str]] = None
) -> list[str]:
    """The argument vector of an entrypoint: a string goes through a shell, and the legacy ``module:Class`` to the harness, by
    Horovod, or torchrun where that is not installed, where there are several slots."""
    if not isinstance(entrypoint, str):
        return list(entrypoint)
    if is_trial_class(entrypoint):
        trial = entrypoint.strip()
        if slots > 1:
            return ["python3", "-m", "dethpc.launch.autohorovod", "--trial", trial]
        return ["python3", "-m", "dethpc.exec.harness", trial]
    return ["/bin/sh", "-c", f"exec {entrypoint}" if _is_one_program(entrypoint, env or {}) else entrypoint]


_NO_PROGRAMS = frozenset(
    "! . : [ [[ { } alias bg break case cd command continue do done echo elif else esac eval exec exit export false fg fi for "
    "function getopts hash if in jobs kill let local printf pwd read readonly return select set shift source test then time times "
    "trap true type typeset ulimit umask unalias unset until wait while".split()
)
_REDIRECTIONS = frozenset(("<", ">", ">>", ">&", "<&", ">|"))


def _is_one_program(entrypoint: str, env: Mapping[str, str]) -> bool:
    """Whether the shell has nothing to do but to start one program, which can then take its place, as some shells let it by
    themselves: a TERM for all processes would end the shell, and what it had still to do would be taken for not done."""
    lexer = shlex.shlex(entrypoint.strip(), posix=True, punctuation_chars=True)
    lexer.commenters, lexer.whitespace_split = "", True
    try:
        tokens = list(lexer)
    except ValueError:  # an open quote, which the shell complains of
        return False
    if (
        "\n" in entrypoint.strip()
        or not tokens
        or tokens[0] in _NO_PROGRAMS
        or set(tokens[0]) & set("=$")
        or f"BASH_FUNC_{tokens[0]}%%" in env  # a function that a hook or the user's shell exports
        or "`" in entrypoint
    ):
        return False
    return not any(
        token.startswith("#") or (set(token) <= set("();<>|&") and token not in _REDIRECTIONS) for token in tokens
    )


def interpreted(directory: str, script: BatchScript) -> list[str]:
    """The argument vector of an sbatch script, by its first line, as Slurm does it."""
    path, first = os.path.join(directory, script.path), ""
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        first = file.readline()
    shebang = shlex.split(first[2:]) if first.startswith("#!") else ["/bin/bash"]
    return [*shebang, path, *script.arguments]


def stop_at(environ: Mapping[str, str]) -> Optional[float]:
    """When to checkpoint before the job's time limit, as the script has worked it out. Core keeps this clock as well."""
    with contextlib.suppress(KeyError, ValueError):
        return float(environ["DETHPC_STOP_AT"])
    deadline = job_end(environ)
    if deadline is None:
        return None
    return deadline - min(LEAD_SECONDS, max(0.0, deadline - time.time()) / 4)
