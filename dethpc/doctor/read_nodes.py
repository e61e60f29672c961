"""Submits a small job to each pool and collects its results. submitit runs the function and returns its result by a file."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dethpc.config.site import PoolConfig
from dethpc.containers import RUNTIMES, Env, Extras
from dethpc.doctor.facts import Node
from dethpc.doctor.probe import ERRORS, probe
from dethpc.doctor.read_slurm import environment
from dethpc.domain.secrets import hide
from dethpc.domain.text import bash
from dethpc.errors import Refused
from dethpc.scheduler.slurm.commands import SlurmCommands
from dethpc.storage import CheckpointStore

POLL = 0.2  # seconds between two looks for a result's file
ASK = 5.0  # and between two questions to Slurm
LATE = 15.0  # for so long a file may be invisible here after its job's end (attribute caches of network file systems)


@dataclass(frozen=True)
class CheckNodes:
    """Send a small job to these pools (all of them if none is named) and wait ``timeout`` seconds for them. ``tell`` gets a line
    of progress."""

    pools: Sequence[str]
    timeout: float
    tell: Callable[[str], None]


@dataclass(frozen=True)
class _Question:
    """What every probe is asked, but for the pool's Python."""

    folder: str
    store: tuple[CheckpointStore, str] | None
    master: tuple[str, int] | None


@dataclass
class _Sent:
    pool: str
    job: Any  # submitit's
    asked_at: float
    place: Path  # what the job leaves
    ended_at: float | None = None


def read_nodes(
    scheduler: SlurmCommands,
    pools: Mapping[str, tuple[PoolConfig, str]],
    home: Path,
    store: CheckpointStore | None,
    master: tuple[str, int] | None,
    nodes: CheckNodes,
) -> list[Node]:
    """One Node for each of ``pools``, which are given with their slot types. Jobs that have not ended in time are cancelled."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="doctor-", dir=home))
    except OSError as error:
        raise Refused(f"cannot write to {home}: {error.strerror}") from error
    try:
        with _locked(folder / "locked"), _marked(store) as marked, _scrubbed():
            question = _Question(str(folder), marked, master)
            return list(_ask(scheduler, pools, question, nodes))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ask(
    scheduler: SlurmCommands,
    pools: Mapping[str, tuple[PoolConfig, str]],
    question: _Question,
    nodes: CheckNodes,
) -> Iterator[Node]:
    waiting: list[_Sent] = []
    address = "" if question.master is None else ":".join(map(str, question.master))
    try:
        for name, (pool, slot_type) in pools.items():
            try:
                waiting.append(_submit(name, pool, slot_type, question))
            except Exception as error:  # submitit's own, which carry what sbatch said
                yield Node(name, problem=f"sbatch refuses a small job: {_last_line(error)}", refused=True)
        yield from _watch(scheduler, waiting, address, nodes)
        records = scheduler.jobs() if waiting else {}
        for sent in waiting:
            record = records.get(sent.job.job_id)
            why = f" ({record.reason})" if record and record.reason else ""
            yield Node(sent.pool, problem=f"its small job has not ended within {nodes.timeout:g} s{why}", late=True)
    finally:  # even when the user has lost patience
        if waiting:
            scheduler.cancel([sent.job.job_id for sent in waiting])


def _watch(scheduler: SlurmCommands, waiting: list[_Sent], address: str, nodes: CheckNodes) -> Iterator[Node]:
    """What ended in time; it is taken off ``waiting``."""
    deadline, ask_at = time.monotonic() + nodes.timeout, time.monotonic()
    while waiting and time.monotonic() < deadline:
        names = ", ".join(sent.pool for sent in waiting)
        nodes.tell(f"waiting for {len(waiting)} small job{'s' if len(waiting) > 1 else ''}: {names}")
        for sent in [sent for sent in waiting if sent.job.paths.result_pickle.exists()]:
            waiting.remove(sent)
            yield _seen(sent, address)
        if waiting and time.monotonic() >= ask_at:
            ask_at = time.monotonic() + ASK
            for sent, code in _ended(scheduler, waiting):
                waiting.remove(sent)
                yield Node(sent.pool, problem=_why(sent, code), exit_code=code)
        time.sleep(POLL)


def _submit(name: str, pool: PoolConfig, slot_type: str, question: _Question) -> _Sent:
    """A job of one slot, as small as a trial can be: what a pool refuses to it, it refuses to trials."""
    from submitit import SlurmExecutor

    place = Path(question.folder) / name.replace("/", "_")
    place.mkdir()
    executor = SlurmExecutor(place, max_num_timeout=0)
    options = {"partition": pool.partition, "qos": pool.qos, "account": pool.account, "constraint": pool.constraint}
    more: dict[str, Any] = {"reservation": pool.reservation} if pool.reservation else {}
    for line in pool.sbatch_args:
        for word in shlex.split(line):
            option, _, value = word.removeprefix("--").partition("=")
            if word.startswith("--"):
                more[option] = value or True
    if pool.whole_nodes:
        more["exclusive"] = True
    elif slot_type != "cpu":
        more["gres"] = pool.gres_of(1)
    executor.update_parameters(
        **{option: value for option, value in options.items() if value},
        job_name="det-doctor",
        time=5 if pool.time_limit_seconds is None else max(1, min(5, int(pool.time_limit_seconds // 60))),
        cpus_per_task=pool.cpus_per_slot or 1,
        mem=pool.mem_per_slot,
        wckey=None,
        use_srun=False,
        setup=[*watched(pool.prologue, place), *_exits(question.folder)],
        additional_parameters=more,
    )
    asked_at = time.time()
    smallest = smallest_containers(pool, slot_type)
    job = executor.submit(probe, question.folder, question.store, pool.python, question.master, smallest)
    return _Sent(name, job, asked_at, place)


def smallest_containers(pool: PoolConfig, slot_type: str) -> dict[str, list[str]]:
    """By runtime, the command that starts the least in the pool's usual image; without one, what says the program's version."""
    commands: dict[str, list[str]] = {}
    for site in pool.container:
        runtime = RUNTIMES[site.runtime]
        if not runtime.binary:
            continue
        image = site.image_for(slot_type)
        command = ["python3", "-c", "pass"]
        wrapped = runtime.wrap(
            image, command, site.own_binds(), Env(), "", Extras(binary=site.binary or "", options=site.options)
        )
        own = ["srun", "--overlap", "--ntasks=1", *wrapped.srun_options] if wrapped.srun_options else []
        commands[site.runtime] = [*own, *wrapped.command] if image else [site.binary or runtime.binary, "--version"]
    return commands


_FAILED, _COMPLAINED = "prologue-failed", "prologue-stderr"


def watched(prologue: Sequence[str], place: Path) -> list[str]:
    """The prologue, with what fails in it, and what it writes to stderr, in two files of ``place``. The probe runs on all the
    same, as a trial does."""
    if not prologue:
        return []
    failed, complained = (shlex.quote(str(place / name)) for name in (_FAILED, _COMPLAINED))
    note = f'dethpc_note() {{ printf "%s\\t%s\\n" "$1" "$2" >>{failed}; }}'
    watch = [note, *bash.watched("dethpc_note")]
    return [f"exec 9>&2 2>{complained}", *watch, *prologue, bash.UNWATCHED, "exec 2>&9 9>&-"]


def prologue_failure(place: Path) -> str:
    """``"module load cuda" exits 127: bash: module: command not found``; empty when nothing failed."""
    try:
        code, _, command = (place / _FAILED).read_text(errors="replace").partition("\n")[0].partition("\t")
    except OSError:
        return ""
    detail = ""
    with contextlib.suppress(OSError):
        lines = (place / _COMPLAINED).read_text(errors="replace").strip().splitlines()
        detail = f": {lines[0][-200:]}" if lines else ""
    return hide(f'"{command[:200]}" exits {code}{detail}', ("prologue",))


def _exits(folder: str) -> Iterator[str]:
    tests = (f"-d {shlex.quote(folder)}", f"-x {shlex.quote(sys.executable)}")
    for code, test in zip(ERRORS, tests, strict=True):
        yield f"test {test} || exit {code}"


def _seen(sent: _Sent, address: str) -> Node:
    seen_at = time.time()
    try:
        answer = sent.job.result()
    except Exception as error:  # whatever the probe raised over there
        return Node(sent.pool, problem=_last_line(error))
    failed = prologue_failure(sent.place)
    return Node(sent.pool, **answer, prologue=failed, asked_at=sent.asked_at, seen_at=seen_at, address=address)


def _ended(scheduler: SlurmCommands, waiting: list[_Sent]) -> Iterator[tuple[_Sent, int | None]]:
    """Those whose job is over without a result, for long enough that it will not appear any more."""
    records = scheduler.jobs()
    for sent in list(waiting):
        record = records.get(sent.job.job_id)
        if record is not None and record.state.live:
            continue
        sent.ended_at = sent.ended_at or time.monotonic()
        code = None if record is None else record.exit_code
        if code in ERRORS or time.monotonic() - sent.ended_at > LATE:
            yield sent, code


def _why(sent: _Sent, code: int | None) -> str:
    if code in ERRORS:
        return f"{ERRORS[code]}: {sys.executable}" if code == 82 else ERRORS[code]
    with contextlib.suppress(OSError):
        lines = sent.job.paths.stderr.read_text(errors="replace").strip().splitlines()
        if lines:
            return f"its small job ended without a result: {lines[-1]}"
    return "its small job ended without a result, and DETHPC_HOME has nothing from it"


def _last_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return (
        next((line for line in lines if "error:" in line), lines[-1])
        .removeprefix("sbatch: error: ")
        .removeprefix("Batch job submission failed: ")
    )


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        with contextlib.suppress(OSError):  # where there are no locks another check says so
            fcntl.lockf(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _marked(store: CheckpointStore | None) -> Iterator[tuple[CheckpointStore, str] | None]:
    """The store and a mark in it; None when there is no store, or nothing can be written to it from here."""
    with contextlib.ExitStack() as stack:
        marked: tuple[CheckpointStore, str] | None = None
        if store is not None:
            with contextlib.suppress(OSError):
                marked = store, stack.enter_context(store.mark())
        yield marked


@contextlib.contextmanager
def _scrubbed() -> Iterator[None]:
    """submitit hands its own environment to sbatch: without what an enclosing job has left in it."""
    before, clean = dict(os.environ), environment()
    os.environ.clear()
    os.environ.update(clean)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
