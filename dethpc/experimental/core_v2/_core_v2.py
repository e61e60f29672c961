"""The Core API for a script that may run anywhere: on the cluster as a trial, elsewhere as an unmanaged trial."""

from __future__ import annotations

import atexit
import dataclasses
import json
import os
import sys
import types
import uuid
import warnings
from typing import Any, Callable, Dict, List, NoReturn, Optional, Type, TypeVar, Union

from dethpc import core
from dethpc.client.session import Session
from dethpc.core._context import _default_storage, _section
from dethpc.core._info import ClusterInfo, RendezvousInfo, TrialInfo, get_cluster_info
from dethpc.core._profiler import ProfilerContext
from dethpc.core._rest import RestReporter, UnmanagedReporter
from dethpc.core._tensorboard import TensorboardFiles, TensorboardWriter, folder_of, local_folder
from dethpc.errors import InvalidHP
from dethpc.experimental._determined import Determined
from dethpc.experimental.core_v2._shipper import LogShipper
from dethpc.storage import build

T = TypeVar("T")
Storage = Union[str, Dict[str, Any]]


@dataclasses.dataclass
class Config:
    """What an unmanaged trial is called and how it is filed; means nothing on the cluster.

    ``external_experiment_id`` makes several scripts report into one experiment; with ``external_trial_id`` as well, a script that
    starts again goes on with its trial.
    """

    name: Optional[str] = None
    hparams: Optional[Dict[str, Any]] = None
    data: Optional[Dict[str, Any]] = None
    description: Optional[str] = None
    labels: Optional[List[str]] = None
    workspace: Optional[str] = None
    project: Optional[str] = None
    checkpoint_storage: Optional[Storage] = None
    searcher: Optional[Dict[str, Any]] = None
    external_experiment_id: Optional[str] = None
    external_trial_id: Optional[str] = None


@dataclasses.dataclass
class DefaultConfig(Config):
    """An older name of ``Config``."""


@dataclasses.dataclass
class UnmanagedConfig(Config):
    """An older name of ``Config``."""


class _UnmanagedContext(core.Context):
    """Tells the master how the script ended, and ships what it prints."""

    _shipper: Optional[LogShipper] = None

    def start(self) -> None:
        super().start()
        if self._shipper is not None:
            self._shipper.start()

    def close(
        self,
        exc_type: Optional[Type[BaseException]] = None,
        exc_val: Optional[BaseException] = None,
        exc_tb: Optional[types.TracebackType] = None,
    ) -> None:
        failed = exc_type is not None and not (exc_type is SystemExit and not getattr(exc_val, "code", None))
        invalid = exc_type is not None and exc_type.__name__ == "InvalidHP"
        try:
            super().close(exc_type, exc_val, exc_tb)
        except BaseException:
            failed = True
            raise
        finally:
            if self._shipper is not None:
                self._shipper.close()
            if isinstance(self._reporter, UnmanagedReporter):
                self._reporter.end("ERROR" if failed and not invalid else "COMPLETED")


_context: Optional[core.Context] = None
_client: Optional[Determined] = None
_ending: Optional[Ending] = None


def init_context(
    *,
    config: Optional[Config] = None,
    defaults: Optional[DefaultConfig] = None,
    unmanaged: Optional[UnmanagedConfig] = None,
    client: Optional[Determined] = None,
    distributed: Optional[core.DistributedContext] = None,
    checkpoint_storage: Optional[Storage] = None,
    preempt_mode: core.PreemptMode = core.PreemptMode.WorkersAskChief,
    tensorboard_mode: core.TensorboardMode = core.TensorboardMode.AUTO,
) -> core.Context:
    """A ``core.Context`` to use in a ``with`` statement, on the cluster and off it.

    Outside the cluster the script becomes a trial of an unmanaged experiment on the master of ``client``: it reports metrics and
    checkpoints, and goes on from ``context.info.latest_checkpoint``. Raises ValueError without a ``config`` there,
    MasterUnreachable, Unauthorized.
    """
    settings = _settings(config, defaults, unmanaged)
    info = get_cluster_info()
    if info is not None and info.task_type == "TRIAL":
        return core.init(
            distributed=distributed,
            checkpoint_storage=checkpoint_storage,
            preempt_mode=preempt_mode,
            tensorboard_mode=tensorboard_mode,
        )
    assert settings is not None
    return _unmanaged(client or Determined(), settings, distributed, checkpoint_storage, preempt_mode, tensorboard_mode)


def init(
    *,
    config: Optional[Config] = None,
    defaults: Optional[DefaultConfig] = None,
    unmanaged: Optional[UnmanagedConfig] = None,
    client: Optional[Determined] = None,
    distributed: Optional[core.DistributedContext] = None,
    checkpoint_storage: Optional[Storage] = None,
    preempt_mode: core.PreemptMode = core.PreemptMode.WorkersAskChief,
    tensorboard_mode: core.TensorboardMode = core.TensorboardMode.AUTO,
) -> None:
    """As ``init_context``, started, with its parts as names of this package: ``core_v2.train``, ``core_v2.checkpoint``, and so on.

    It ends with ``close()``, or with the process: in ERROR when an exception or ``sys.exit`` with another code than 0 ends that.
    """
    global _context, _client, _ending
    close()
    _client = client
    if _client is None and get_cluster_info() is None:
        _client = Determined()
    _context = init_context(
        config=config,
        defaults=defaults,
        unmanaged=unmanaged,
        client=_client,
        distributed=distributed,
        checkpoint_storage=checkpoint_storage,
        preempt_mode=preempt_mode,
        tensorboard_mode=tensorboard_mode,
    )
    _context.start()
    _publish(_context)
    if _ending is None:
        _ending = Ending()
        atexit.register(_close_with_process, _ending)


def close() -> None:
    """End what ``init`` began: the trial has completed. Does nothing without it."""
    _close(None)


def _close_with_process(ending: Ending) -> None:
    if _context is not None and isinstance(ending.error, InvalidHP):
        _context.train.report_early_exit(core.EarlyExitReason.INVALID_HP)
    _close(ending.error)


def _close(error: Optional[BaseException]) -> None:
    global _context
    closing, _context = _context, None
    if closing is not None:
        _publish(None)
        closing.close(type(error) if error is not None else None, error)


def url_reverse_webui_exp_view() -> str:
    """The address of the experiment's page. Raises RuntimeError before ``init``."""
    if _context is None or _context.info is None:
        raise RuntimeError("call init() first")
    master = _client._master if _client is not None else _context.info.master_url
    return f"{master}/det/experiments/{_context.info.trial.experiment_id}"


def _publish(context: Optional[core.Context]) -> None:
    from dethpc.experimental import core_v2

    for name in ("train", "distributed", "preempt", "checkpoint", "searcher", "info", "profiler"):
        setattr(core_v2, name, getattr(context, name) if context is not None else None)


def _settings(
    config: Optional[Config], defaults: Optional[DefaultConfig], unmanaged: Optional[UnmanagedConfig]
) -> Optional[Config]:
    if defaults is not None or unmanaged is not None:
        warnings.warn("defaults= and unmanaged= are older names: use config=", FutureWarning, stacklevel=3)
    if config is not None:
        return config
    if defaults is None and get_cluster_info() is None:
        raise ValueError("outside the cluster give a config")
    if defaults is None or unmanaged is None:
        return defaults
    filing = ("project", "workspace", "external_experiment_id", "external_trial_id")
    return dataclasses.replace(
        defaults, **{name: getattr(defaults, name) or getattr(unmanaged, name) for name in filing}
    )


def _unmanaged(
    client: Determined,
    config: Config,
    distributed: Optional[core.DistributedContext],
    checkpoint_storage: Optional[Storage],
    preempt_mode: core.PreemptMode,
    tensorboard_mode: core.TensorboardMode,
) -> core.Context:
    distributed = distributed or core.DummyDistributedContext()
    section = _section(checkpoint_storage or config.checkpoint_storage or str(_default_storage() / "checkpoints")) or {}
    store = build(section)
    chosen: Dict[str, Any] = {
        "name": config.name or f"unmanaged-{uuid.uuid4().hex[:8]}",
        "data": config.data,
        "description": config.description,
        "labels": config.labels,
        "searcher": config.searcher or {"name": "single", "metric": "unmanaged"},
        "workspace": config.workspace,
        "project": config.project,
        "checkpoint_storage": section,
    }
    session = client._session
    info = _on_chief(distributed, lambda: _trial(session, chosen, config))
    store.owner = info._owner
    files = TensorboardFiles(
        local_folder(None, distributed.rank),
        store,
        folder_of(info.cluster_id, info.trial.experiment_id, info.trial.trial_id),
    )
    chief = distributed.rank == 0
    kind = UnmanagedReporter if chief else RestReporter
    reporter = kind(session, info.trial.trial_id, info.trial._trial_run_id, info.task_id)
    writer = TensorboardWriter(files) if chief and tensorboard_mode is core.TensorboardMode.AUTO else None
    train = core.TrainContext(
        session,
        info.trial.trial_id,
        info.trial.experiment_id,
        reporter,
        distributed,
        tensorboard_mode,
        files,
        writer,
    )
    context = _UnmanagedContext(
        checkpoint=core.CheckpointContext(distributed, store, section, session, train._report),
        distributed=distributed,
        preempt=core.DummyPreemptContext(distributed, preempt_mode),
        train=train,
        info=info,
        profiler=ProfilerContext(os.uname().nodename, train._report_system_metrics if chief else None, distributed),
        _reporter=reporter,
        _tensorboard=writer,
    )
    context._shipper = LogShipper(session, info.task_id, distributed.rank)
    return context


def _on_chief(distributed: core.DistributedContext, call: Callable[[], T]) -> T:
    """The chief's result, for all workers; when it fails there, all fail."""
    if distributed.rank != 0:
        ok, result = distributed.broadcast(None)
        if not ok:
            raise RuntimeError(f"the chief failed: {result}")
        value: T = result
        return value
    try:
        mine = call()
    except Exception as error:
        distributed.broadcast((False, str(error)))
        raise
    distributed.broadcast((True, mine))
    return mine


def _trial(session: Session, chosen: Dict[str, Any], config: Config) -> ClusterInfo:
    """Create or find the experiment and the trial, start it, and describe it as the cluster would."""
    cluster = session.get("/api/v1/master")["clusterId"]
    body = {"config": json.dumps(chosen), "unmanaged": True}
    if config.external_trial_id is not None and config.external_experiment_id is None:
        raise ValueError("an external_trial_id needs the external_experiment_id that it belongs to")
    if config.external_experiment_id is None:
        answer = session.post("/api/v1/experiments", body)["experiment"]
    else:
        from urllib.parse import quote

        path = f"/api/v1/experiments/by-external-id/{quote(config.external_experiment_id, safe='')}"
        answer = session.put(path, body)["experiment"]
    experiment = answer["id"]
    new = {"experimentId": experiment, "hparams": config.hparams or {}, "unmanaged": True}
    if config.external_trial_id is None:
        trial = session.post("/api/v1/trials", new)["trial"]
    else:
        put = {"createTrialRequest": new, "externalTrialId": config.external_trial_id}
        trial = session.put("/api/v1/trials", put)["trial"]
    begun = session.post(f"/api/v1/trials/{trial['id']}/start", {"trialId": trial["id"], "resume": True})
    info = ClusterInfo(
        master_url=session.url,
        cluster_id=cluster,
        agent_id="unmanaged",
        slot_ids=[],
        task_id=trial["taskId"],
        allocation_id=trial["taskId"],
        session_token=session._token or "",
        task_type="TRIAL",
        latest_checkpoint=begun.get("latestCheckpoint"),
        trial_info=TrialInfo(
            trial_id=trial["id"],
            experiment_id=experiment,
            trial_seed=0,
            hparams=config.hparams or {},
            config=chosen,
            steps_completed=begun["stepsCompleted"],
            trial_run_id=begun["trialRunId"],
        ),
        rendezvous_info=RendezvousInfo(["127.0.0.1"], 0, [0]),
    )
    info._experiment_uuid = answer.get("jobId") or ""
    return info


class Ending:
    """How this process ends: at exit Python says no more that an exception, or an exit code, is why.

    Watches from its making on. ``error`` is the exception that nobody caught, or the ``SystemExit`` of a failure.

    A program that catches its own ``sys.exit`` of a failure, and goes on, counts as failed.
    """

    def __init__(self) -> None:
        self.error: Optional[BaseException] = None
        self._exit, self._uncaught = sys.exit, sys.excepthook
        sys.exit, sys.excepthook = self._leave, self._fail

    def _leave(self, status: Any = None, /) -> NoReturn:
        self.error = SystemExit(status) if status else None
        self._exit(status)

    def _fail(self, kind: Type[BaseException], error: BaseException, traceback: Optional[types.TracebackType]) -> None:
        self.error = error
        self._uncaught(kind, error, traceback)
