"""``det experiment create --local --test-mode``: a short test run of an experiment on this machine, without master or Slurm.

The entrypoint runs as on a node, through the same node program, twice: the first time it trains a little, validates and saves a
checkpoint; the second time it goes on from that. Trial classes and Trainers train one batch and end by themselves; other code
is asked to stop once it has reported.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, Optional

import dethpc
from dethpc.cli import output
from dethpc.config import Loaded
from dethpc.config.experiment import ExperimentConfig
from dethpc.config.ranking import unranked
from dethpc.config.sections.hyperparameters import Categorical, Const, Log, Space
from dethpc.config.sections.searcher import Single
from dethpc.context.collect import Context
from dethpc.domain.attempts.end_report import EndReport
from dethpc.domain.attempts.stopping import StopRequest
from dethpc.domain.entrypoint import is_trial_class
from dethpc.domain.reports import Report, ReportKind
from dethpc.rundir.files import create_once, read_json, sealed, write_json
from dethpc.rundir.home import Home
from dethpc.rundir.journal import read
from dethpc.rundir.layout import AttemptDir
from dethpc.rundir.logline import read_lines
from dethpc.rundir.spec import Spec

PATIENCE = 5.0  # seconds that code which has reported metrics may go on before it is asked to stop
_RUN = "1.1.1"


class Step(NamedTuple):
    """A part of the circle: whether it went well (None: it never came to that), and what there is to say."""

    name: str
    good: Optional[bool]
    message: str


def run(loaded: Loaded, context: Context) -> list[Step]:
    """Run the circle, showing the log as it comes."""
    with tempfile.TemporaryDirectory(prefix="det-test-") as base:
        circle = _Circle(Path(base), loaded, context)
        circle.write()
        first = circle.attempt(0)
        second = circle.attempt(1) if first.well and first.of("checkpoint") else None
        return list(_steps(loaded.config, lowest(loaded.config.space), first, second))


@dataclass(frozen=True)
class _Attempt:
    started: dict[str, Any]
    end: EndReport
    events: list[Report]
    tail: str

    @property
    def well(self) -> bool:
        return self.end.finished or self.end.acked

    def of(self, kind: str, group: Optional[str] = None) -> list[Report]:
        return [event for event in self.events if event.kind == kind and group in (None, event.data.get("group"))]


class _Circle:
    def __init__(self, base: Path, loaded: Loaded, context: Context) -> None:
        self._base = base
        self._loaded = loaded
        self._context = context
        self._run = Home(base).run(_RUN)

    def write(self) -> None:
        """The run directory, as the master would write it."""
        self._run.make()
        archive = self._base / "context.tar.gz"
        with tarfile.open(archive, "w:gz") as tar:
            for entry in self._context.entries:
                member = tarfile.TarInfo(entry.path)
                member.type, member.mode, member.mtime, member.linkname = (
                    entry.type,
                    entry.mode,
                    entry.mtime,
                    entry.link,
                )
                content = entry.content() if entry.type == tarfile.REGTYPE else b""
                member.size = len(content)
                tar.addfile(member, BytesIO(content))
        config = short(self._loaded.config)
        spec = Spec(
            cluster_id="local-test",
            cluster_name="local test",
            master_file=str(Home(self._base).master_file),
            run=_RUN,
            experiment_id=1,
            trial_id=1,
            task_id="1.1",
            run_number=1,
            trial_seed=config.reproducibility.experiment_seed or 0,
            hparams=lowest(config.space),
            config=config.to_json(),
            entrypoint=config.entrypoint,
            context=str(archive),
            context_sha256="",
            token="local-test",  # nosec B106  # no master asks for it
            worker_secret=secrets.token_urlsafe(32),
            slots=1,
            slots_per_node=1,
            environment={**config.environment.variables("cpu"), "DETHPC_TEST_MODE": "1"},
            checkpoint_storage={"type": "shared_fs", "host_path": str(Home(self._base).checkpoints)},
            venv=str(Home(self._base).venv(1)) if config.environment.venv else "",
            venv_at_need="" if config.environment.venv else str(Home(self._base).venv(1)),
            det_prefix=sys.prefix,
            trial_dir=str(Home(self._base).trials(1) / "1"),
        )
        write_json(self._run.spec, sealed(spec.to_json()))

    def attempt(self, k: int) -> _Attempt:
        attempt = self._run.attempt(k)
        node = subprocess.Popen(
            [*self._prepared(), sys.executable, "-m", "dethpc.exec", str(self._run.path)],
            env=self._environment(k),
            cwd="/",
            start_new_session=True,
        )
        try:
            self._follow(node, attempt)
        finally:
            if node.poll() is None:  # interrupted
                os.killpg(node.pid, signal.SIGTERM)
                try:
                    node.wait(10)
                except subprocess.TimeoutExpired:
                    os.killpg(node.pid, signal.SIGKILL)
                    node.wait()
        lines, _ = read_lines(attempt.log(0))
        last = lines[-1].text if lines else f"exit code {node.returncode}"
        started, end = read_json(attempt.started) or {}, attempt.end_report() or EndReport()
        return _Attempt(started, end, _events(attempt), last)

    def _follow(self, node: subprocess.Popen[bytes], attempt: AttemptDir) -> None:
        offset, reported_at = 0, None
        while True:
            ended = node.poll() is not None
            lines, offset = read_lines(attempt.log(0), offset)
            for line in lines:
                output.echo(line.text)
            if ended:
                return
            if not attempt.stop.exists():
                events = _events(attempt)
                if reported_at is None and any(event.kind == ReportKind.METRICS for event in events):
                    reported_at = time.monotonic()
                if reported_at is not None and time.monotonic() - reported_at > PATIENCE:
                    create_once(attempt.stop, StopRequest("test", time.time()).to_json())
            time.sleep(0.1)

    def _prepared(self) -> list[str]:
        """What runs a command as ``environment.setup`` and ``environment.python`` want it."""
        lines = self._loaded.config.environment.shell_lines()
        failed = 'dethpc_failed() { trap - DEBUG ERR EXIT; echo "$1" >&2; exit 1; }'
        return ["/bin/bash", "-c", "\n".join([failed, *lines, 'exec "$@"']), "bash"] if lines else []

    def _environment(self, k: int) -> dict[str, str]:
        env = {n: v for n, v in os.environ.items() if not n.startswith(("SLURM_", "DETHPC_", "DET_"))}
        code = self._base / "code"  # not all that is installed beside it: the entrypoint may run another interpreter
        if not code.exists():
            code.mkdir()
            for name in ("dethpc", "determined"):
                (code / name).symlink_to(Path(dethpc.__file__).parents[1] / name)
        return {
            **env,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(code), env.get("PYTHONPATH")])),
            "DETHPC_JOB_ID": "0",
            "DETHPC_ATTEMPT": str(k),
            "DETHPC_NODE_RANK": "0",
            "DETHPC_NODES": "localhost",
            "DETHPC_ADDRESSES": "127.0.0.1",
            "DETHPC_WORKDIR_BASE": str(self._base),
        }


def _events(attempt: AttemptDir) -> list[Report]:
    return read(attempt.journal)[0] if attempt.journal.exists() else []


def short(config: ExperimentConfig) -> ExperimentConfig:
    """The configuration of one batch of training and validation."""
    metric, smaller = config.searcher.metric, config.searcher.smaller_is_better
    changes = {
        "searcher": Single(name="single", metric=metric, smaller_is_better=smaller, max_length={"batches": 1}),
        "scheduling_unit": 1,
        "min_validation_period": {"batches": 1},
        "min_checkpoint_period": {"batches": 0},
        "max_restarts": 0,
    }
    return config.model_copy(update=changes)


def lowest(space: Space) -> dict[str, Any]:
    """The first choice, or the lower end, of each hyperparameter."""
    return {name: lowest(item) if isinstance(item, dict) else _lowest(item) for name, item in space.items()}


def _lowest(item: Any) -> Any:
    if isinstance(item, Const):
        return item.val
    if isinstance(item, Categorical):
        return item.vals[0]
    return item.base**item.minval if isinstance(item, Log) else item.minval


def _steps(
    config: ExperimentConfig, hparams: dict[str, Any], first: _Attempt, second: Optional[_Attempt]
) -> Iterator[Step]:
    why = first.end.message or first.tail
    phase = first.end.phase or "claim"
    yield Step("start", phase == "train", "" if phase == "train" else why)
    if phase != "train":
        return
    training = first.of(ReportKind.METRICS, "training")
    yield _reported("train", training, first, why)
    validations = [event for one in (first, second) if one for event in one.of(ReportKind.METRICS, "validation")]
    yield _ranked(_reported("validate", validations, first, why), config, hparams, validations)
    saved = first.of("checkpoint")
    yield _saved(config, first, saved)
    if second is None:
        if not first.well:
            yield Step("end", False, why)
        return
    resumed = second.started.get("resumed_from") == saved[-1].data["uuid"]
    good = resumed and second.well
    yield Step("restore", good, "" if good else second.end.message or second.tail)


def _saved(config: ExperimentConfig, attempt: _Attempt, saved: list[Report]) -> Step:
    """Code of the Core API that trains to its end may save none; what is stopped without one would begin anew each time."""
    if saved:
        return Step("checkpoint", True, f"{len(saved[-1].data.get('resources') or {})} files")
    if not attempt.well:
        return Step("checkpoint", None, "none was saved")
    expected = attempt.end.acked or (isinstance(config.entrypoint, str) and is_trial_class(config.entrypoint))
    return Step("checkpoint", False if expected else None, "none was saved: after a pause, training would start over")


def _ranked(step: Step, config: ExperimentConfig, hparams: dict[str, Any], validations: list[Report]) -> Step:
    """Fails the step when no validation holds what the searcher compares trials by."""
    problems = [
        unranked(config, hparams, event.data[ReportKind.METRICS], int(event.data["steps_completed"]))
        for event in validations
    ]
    return step._replace(good=False, message=problems[0]) if problems and all(problems) else step


def _reported(name: str, events: list[Report], attempt: _Attempt, why: str) -> Step:
    if events:
        metrics = ", ".join(sorted(events[-1].data[ReportKind.METRICS]))
        return Step(name, True, f"reported {metrics}")
    # Code of the Core API may leave out either; an error has its own line.
    return Step(name, None if attempt.well else False, "nothing was reported" if attempt.well else why)
