"""``core.init()``: makes a context of its parts, on the cluster and off it."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import types
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Tuple, Type, Union

from dethpc.core._checkpoint import CheckpointContext, DummyCheckpointContext
from dethpc.core._distributed import DistributedContext, DummyDistributedContext
from dethpc.core._experimental import DummyExperimentalCoreContext, ExperimentalCoreContext
from dethpc.core._info import ClusterInfo, get_cluster_info
from dethpc.core._preempt import (
    DummyPreemptContext,
    PreemptContext,
    PreemptMode,
    _PreemptionWatcher,
    acknowledge,
)
from dethpc.core._profiler import DummyProfilerContext, ProfilerContext
from dethpc.core._searcher import (
    DummySearcherContext,
    SearcherContext,
    SearcherContextMissing,
    Unit,
    _lengths,
    _unit,
)
from dethpc.core._tensorboard import TensorboardFiles, TensorboardMode, TensorboardWriter, folder_of, local_folder
from dethpc.core._term import TermHandler
from dethpc.core._train import DummyTrainContext, EarlyExitReason, TrainContext
from dethpc.domain.attempts.end_report import plain_text
from dethpc.domain.reports import WOULD_FAIL_AGAIN
from dethpc.errors import InvalidHP, MetricMissing, RunDirError
from dethpc.storage import CheckpointStore, build, section

if TYPE_CHECKING:
    from dethpc.client.address import MasterFinder
    from dethpc.core._reporter import Reporter, Reports
    from dethpc.domain.trial_config import TrialConfig
    from dethpc.rundir.layout import AttemptDir

logger = logging.getLogger("dethpc.core")


_WORTH = 2.0  # seconds that a look waits for what the search says of the last validation
_VERDICT = 10.0  # seconds that an operation waits for what the master says of the one before

Storage = Union[str, "os.PathLike[str]", Dict[str, Any]]


class Context:
    """What ``core.init()`` returns; use it in a ``with`` statement.

    ``checkpoint``, ``distributed``, ``preempt``, ``searcher``, ``train``, ``profiler`` and ``experimental`` are the parts of the
    API; ``info`` is the :class:`~dethpc.ClusterInfo`, or None outside the cluster. Leaving the block brings every report to disk.
    An InvalidHP that leaves it is reported, and the process exits with 0.
    """

    def __init__(
        self,
        checkpoint: CheckpointContext,
        distributed: Optional[DistributedContext] = None,
        preempt: Optional[PreemptContext] = None,
        train: Optional[TrainContext] = None,
        searcher: Optional[SearcherContext] = None,
        info: Optional[ClusterInfo] = None,
        experimental: Optional[ExperimentalCoreContext] = None,
        profiler: Optional[ProfilerContext] = None,
        _reporter: Optional[Reports] = None,
        _tensorboard: Optional[TensorboardWriter] = None,
        _term: Optional[TermHandler] = None,
    ) -> None:
        self.checkpoint = checkpoint
        self.distributed = distributed or DummyDistributedContext()
        self.preempt = preempt or DummyPreemptContext(self.distributed)
        self.train = train or DummyTrainContext()
        self.searcher = searcher or SearcherContextMissing()
        self.info = info
        self.experimental = experimental or DummyExperimentalCoreContext()
        self.profiler = profiler or DummyProfilerContext()
        self._reporter = _reporter
        self._tensorboard = _tensorboard
        self._term = _term

    def start(self) -> None:
        if self._term is not None:
            self._term.open()
        self.preempt.start()
        if self._reporter is not None:
            self._reporter.start()
        if self._tensorboard is not None:
            self._tensorboard.start()
        self.profiler._start()

    def _take_term_from(self, package: str) -> None:
        """A framework that handles TERM by ending the training at once leaves no time for its checkpoint."""
        if self._term is not None:
            self._term.take_from(package)

    def close(
        self,
        exc_type: Optional[Type[BaseException]] = None,
        exc_val: Optional[BaseException] = None,
        exc_tb: Optional[types.TracebackType] = None,
    ) -> None:
        self.checkpoint._tell_if_away(exc_val)
        try:
            leaving_well = exc_val is None or (isinstance(exc_val, SystemExit) and not exc_val.code)
            self.checkpoint._close(failing=not leaving_well)
        except OSError as error:
            self.checkpoint._tell_if_away(error)
            raise
        finally:
            self._close_rest()

    def _close_rest(self) -> None:
        self.preempt.close()
        self.profiler._close()
        if self._tensorboard is not None:
            self._tensorboard.close()
        self.distributed.close()
        if self._reporter is not None:
            self._reporter.close()
        if self._term is not None:
            self._term.close()

    def __enter__(self) -> Context:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: Optional[Type[BaseException]],
        exc_val: Optional[BaseException],
        exc_tb: Optional[types.TracebackType],
    ) -> None:
        if isinstance(exc_val, InvalidHP):
            self.train.report_early_exit(EarlyExitReason.INVALID_HP)
        elif isinstance(exc_val, MetricMissing):
            self.train._report_early_exit(f"{WOULD_FAIL_AGAIN}{plain_text(exc_val)[:500]}")
        self.close(exc_type, exc_val, exc_tb)
        if isinstance(exc_val, InvalidHP):
            logger.info("these hyperparameters are invalid: %s", exc_val)
            sys.exit(0)

    def alert(
        self, title: Optional[str] = None, description: Optional[str] = None, level: Optional[str] = "info"
    ) -> None:
        """Say something that people should know: it is in the trial's log and among its reports, and webhooks send it.

        ``level``: "debug", "info", "warn" or "error".
        """
        levels = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
        logger.log(levels.get(level or "info", logging.INFO), "alert: %s: %s", title or "", description or "")
        self.train._report_alert(title or "", description or "", level or "info")


def init(
    *,
    distributed: Optional[DistributedContext] = None,
    checkpoint_storage: Optional[Storage] = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    tensorboard_mode: TensorboardMode = TensorboardMode.AUTO,
) -> Context:
    """Build the :class:`Context` of this process: ``with core.init() as core_context: ...`` around all of the training.

    ``distributed`` is needed when the task has several workers. ``checkpoint_storage`` replaces that of the configuration: a
    path, a URL, or a dict like the configuration's section. ``preempt_mode`` and ``tensorboard_mode``: see their classes.

    Outside the cluster everything works as well: metrics are logged, checkpoints go to ``checkpoint_storage`` or a directory in the
    home, and nobody preempts. Raises ValueError when ``distributed`` is missing, and ConfigError.
    """
    info = get_cluster_info()
    if info is None:
        return _dummy_init(distributed=distributed, checkpoint_storage=checkpoint_storage, preempt_mode=preempt_mode)
    if distributed is None and (len(info.container_addrs) > 1 or len(info.slot_ids) > 1):
        raise ValueError(
            "this task has several slots, and core.init() was called without distributed. To train with one worker per slot, "
            "let a launcher start them (entrypoint: python3 -m determined.launch.torch_distributed python3 train.py) and call "
            "core.init(distributed=det.core.DistributedContext.from_torch_distributed()); to train in one process, set "
            "resources.slots_per_trial: 1"
        )
    if info.task_type != "TRIAL":
        context = _dummy_init(distributed=distributed, checkpoint_storage=checkpoint_storage, preempt_mode=preempt_mode)
        context.info = info
        return context
    return _on_cluster(
        info, distributed or DummyDistributedContext(), checkpoint_storage, preempt_mode, tensorboard_mode
    )


def _on_cluster(
    info: ClusterInfo,
    distributed: DistributedContext,
    checkpoint_storage: Optional[Storage],
    preempt_mode: PreemptMode,
    tensorboard_mode: TensorboardMode,
) -> Context:
    from dethpc.client.address import MasterFinder
    from dethpc.client.session import Session
    from dethpc.rundir.layout import AttemptDir

    assert info._attempt_dir is not None
    name_levels()
    trial, attempt = info.trial, AttemptDir(info._attempt_dir)
    settings = trial._settings
    finder = MasterFinder(info._master_file, info.master_url)
    session = Session(finder, info.session_token, retries=4)
    storage_section, store = _store(info, checkpoint_storage)
    watcher = _PreemptionWatcher(
        attempt, info.allocation_id, Session(finder, info.session_token, retries=0), finder, info._stop_at
    )
    reporter = _of_chief(info, finder, attempt.journal, watcher.hear) if distributed.rank == 0 else None
    tensorboard = _tensorboard_files(info, distributed, store)
    automatic = tensorboard_mode is TensorboardMode.AUTO and distributed.rank == 0
    writer = TensorboardWriter(tensorboard) if automatic else None
    reports = reporter or _beside_chief(info, finder, attempt.journal_of(distributed.rank))
    train = TrainContext(
        session, trial.trial_id, trial.experiment_id, reports, distributed, tensorboard_mode, tensorboard, writer
    )
    preempt = PreemptContext(
        distributed, preempt_mode, watcher, partial(acknowledge, attempt, reporter), _verdict(reporter, settings)
    )
    return Context(
        checkpoint=CheckpointContext(
            distributed, store, storage_section, session, train._report, info.latest_checkpoint
        ),
        distributed=distributed,
        preempt=preempt,
        train=train,
        searcher=_searcher(info, distributed, train, attempt, lambda: _leave(reporter, preempt)),
        info=info,
        experimental=ExperimentalCoreContext(session, trial.trial_id),
        profiler=ProfilerContext(
            info.agent_id,
            train._report_system_metrics if reporter else None,
            distributed,
            attempt.path,
            from_start=settings.profiling_enabled,
        ),
        _reporter=reports,
        _tensorboard=writer,
        _term=_term_handler(attempt, preempt),
    )


def _verdict(reporter: Optional[Reporter], settings: TrialConfig) -> Optional[Callable[[], None]]:
    """Waits for what the search says of the last validation; None where it ends no trial by one."""
    return partial(reporter.await_verdict, _WORTH) if reporter and settings.searcher.stops_trials else None


def _term_handler(attempt: AttemptDir, preempt: PreemptContext) -> TermHandler:
    killed, stop_requested = partial(_killed, attempt), partial(_asked_to_stop, attempt)
    return TermHandler(killed, stop_requested, preempt._note_term, lambda: preempt._answered)


def _killed(attempt: AttemptDir) -> bool:
    with contextlib.suppress(OSError, RunDirError):  # a file system that hiccups
        return attempt.run.kill() is not None
    return False


def _asked_to_stop(attempt: AttemptDir) -> bool:
    try:
        return attempt.stop.exists()
    except OSError:
        return True  # the file system hiccups: nobody can tell


def _store(info: ClusterInfo, storage: Optional[Storage]) -> Tuple[Dict[str, Any], CheckpointStore]:
    """Where checkpoints go, and its section."""
    section = _section(storage) or info._checkpoint_storage or info.trial._settings.checkpoint_storage
    return section, build(section, disk=_disk(info), spool=info._spool, owner=info._owner)


def _disk(info: ClusterInfo) -> Optional[str]:
    """Where this node keeps what is on its way to a store that is no folder; None: wherever the store says."""
    scratch = info._folder("scratch")
    return None if scratch is None else str(scratch / "checkpoints")


def _of_chief(info: ClusterInfo, finder: MasterFinder, journal: Path, on_stop: Callable[[str], None]) -> Reporter:
    from dethpc.client.session import Session
    from dethpc.core._reporter import Reporter
    from dethpc.domain.ids import AttemptId

    session = Session(finder, info.session_token, timeout=15, retries=0)
    return Reporter(journal, session, AttemptId.parse(info.allocation_id), on_stop, finder.refresh)


def _beside_chief(info: ClusterInfo, finder: MasterFinder, journal: Path) -> Reports:
    from dethpc.client.session import Session, notify
    from dethpc.core._rest import WorkerReporter
    from dethpc.domain.ids import AttemptId

    session = Session(finder, info.session_token, retries=0)
    whose = info.trial.trial_id, info.trial._trial_run_id, info.task_id
    return WorkerReporter(journal, session, *whose, partial(notify, session, AttemptId.parse(info.allocation_id)))


def _tensorboard_files(info: ClusterInfo, distributed: DistributedContext, store: CheckpointStore) -> TensorboardFiles:
    return TensorboardFiles(
        local_folder(info._folder("scratch"), distributed.rank),
        store,
        folder_of(info.cluster_id, info.trial.experiment_id, info.trial.trial_id),
    )


def _searcher(
    info: ClusterInfo,
    distributed: DistributedContext,
    train: TrainContext,
    attempt: AttemptDir,
    leave: Callable[[], bool],
) -> Optional[SearcherContext]:
    """None where the search has no lengths. ``leave``: whether to go, asked between two operations."""
    searcher = info.trial._settings.searcher
    lengths = _lengths(searcher, info.trial._search)
    if not lengths:
        return None
    return SearcherContext(
        distributed,
        train._report,
        lengths,
        _unit(searcher),
        lambda: _completed_before(attempt, _unit(searcher)),
        leave,
    )


def _leave(reporter: Optional[Reporter], preempt: PreemptContext) -> bool:
    """Between two operations: the first one's verdict is worth waiting for, as a stopped trial would train on in vain."""
    if reporter is not None:
        reporter.settle(_VERDICT)
    return preempt._leave()


def _completed_before(attempt: AttemptDir, unit: Optional[Unit]) -> float:
    """The greatest length that the trial completed before this attempt. What it had to train again since, it has trained. A
    length in another unit says nothing: the experiment was continued with lengths in this one."""
    from dethpc.domain.reports import ReportKind
    from dethpc.rundir.home import Home
    from dethpc.rundir.journal import read_remains
    from dethpc.rundir.layout import RunDir

    run = RunDir(attempt.path.parent.parent)
    home = Home(run.path.parent.parent)
    trial, _, number = run.path.name.rpartition(".")
    completed, named = 0.0, unit.value if unit is not None else None
    # Those of a trial that had ended, and was continued long after that, are folded.
    for earlier in [*(home.find(f"{trial}.{n}") for n in range(1, int(number))), run]:
        for k in earlier.attempts():
            if earlier is not run or k < attempt.k:
                reports = read_remains(earlier.attempt(k).journal).reports
                ops = (report for report in reports if report.kind == ReportKind.SEARCHER_OP)
                mine = (op.data for op in ops if op.data.get("unit", named) == named)
                completed = max([completed, *(float(op["length"]) for op in mine)])
    return completed


def _dummy_init(
    *,
    distributed: Optional[DistributedContext] = None,
    checkpoint_storage: Optional[Storage] = None,
    tensorboard_path: Optional[Path] = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
) -> Context:
    """A context outside the cluster."""
    distributed = distributed or DummyDistributedContext()
    store = _get_storage_manager(checkpoint_storage)
    if store is None:
        store = build({"type": "shared_fs", "host_path": str(_default_storage())})
        logger.info("checkpoints go to %s", store)
    return Context(
        checkpoint=DummyCheckpointContext(distributed, store),
        distributed=distributed,
        preempt=DummyPreemptContext(distributed, preempt_mode),
        train=DummyTrainContext(tensorboard_path),
        searcher=DummySearcherContext(distributed),
    )


def _get_storage_manager(checkpoint_storage: Optional[Storage]) -> Optional[CheckpointStore]:
    section = _section(checkpoint_storage)
    return build(section) if section else None


def _section(checkpoint_storage: Optional[Storage]) -> Optional[Dict[str, Any]]:
    if checkpoint_storage is None or isinstance(checkpoint_storage, dict):
        return checkpoint_storage
    if isinstance(checkpoint_storage, (str, os.PathLike)):
        return section(os.fspath(checkpoint_storage))
    raise TypeError(f"checkpoint_storage is a path, a URL or a dict, not a {type(checkpoint_storage).__name__}")


def _default_storage() -> Path:
    """Where Determined puts them, unless a home was named for all of dethpc's state."""
    from dethpc.rundir.home import Home, named_home

    if (named := named_home()) is not None:
        return Home(named).checkpoints
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local" / "share") / "determined"


class _Fallback(logging.Handler):
    """Writes warnings to stderr, as Python does by itself then, but with their level: a trial's log knows a line's level by it."""

    def emit(self, record: logging.LogRecord) -> None:
        if logging.getLogger().handlers:
            return
        try:
            print(self.format(record), file=sys.stderr)
        except Exception:
            self.handleError(record)


def name_levels() -> None:
    """Logging by dethpc in a training that has set up none of its own. To be called once training code runs on the cluster; a
    second call changes nothing."""
    ours = logging.getLogger("dethpc")
    if not any(isinstance(handler, _Fallback) for handler in ours.handlers):
        fallback = _Fallback(logging.WARNING)
        fallback.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
        ours.addHandler(fallback)
