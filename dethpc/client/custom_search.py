"""Custom search methods, which run in the user's own process: on a login node, on a workstation or in a job.

Write a ``SearchMethod`` and give it to a ``LocalSearchRunner``. The master sends events (a trial was created, has validated, has
ended) and the method answers with operations (create a trial, train it further, close it, end the search). The names are those
of Determined's custom search, which its release 0.38 no longer has.

The runner may be killed at any time and restarted with the same folder: it answers each event once.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple, TypeVar, Union

from dethpc.client import address
from dethpc.client.login import token_at
from dethpc.client.nouns import experiments
from dethpc.client.search_operations import (
    Close,
    Create,
    ExitedReason,
    Operation,
    Progress,
    Shutdown,
    ValidateAfter,
)
from dethpc.client.session import Json, Session
from dethpc.errors import ContextError, MasterUnreachable, NotTheMaster, Refused
from dethpc.rundir.files import read_json, write_json

__all__ = [
    "Close",
    "Create",
    "ExitedReason",
    "LocalSearchRunner",
    "Operation",
    "Progress",
    "SearchMethod",
    "SearcherState",
    "Shutdown",
    "ValidateAfter",
]

logger = logging.getLogger("dethpc.search")

T = TypeVar("T")

_WAIT = 50.0  # seconds that the master is asked to wait for an event
_KEY = "custom_search"  # in the experiment's ``data``: which folder it belongs to


# --- what the user writes


@dataclass
class SearcherState:
    """What the runner knows of the search; it keeps this over restarts. ``trial_progress``: the length at which each trial has
    last validated, 0.0 before."""

    trials_created: Set[uuid.UUID] = field(default_factory=set)
    trial_progress: Dict[uuid.UUID, float] = field(default_factory=dict)
    trials_closed: Set[uuid.UUID] = field(default_factory=set)
    failures: Set[uuid.UUID] = field(default_factory=set)
    last_event_id: int = 0
    experiment_id: Optional[int] = None
    experiment_completed: bool = False


class SearchMethod:
    """Decides which trials to run and for how long. Override what you need; each call answers one event.

    ``save_method_state`` and ``load_method_state`` get a folder: whatever the next calls depend on belongs there. Calls that
    were not followed by a save never happened, as far as the search is concerned: the event comes again.
    """

    def initial_operations(self, searcher_state: SearcherState) -> List[Operation]:
        """The first trials."""
        raise NotImplementedError

    def on_trial_created(self, searcher_state: SearcherState, request_id: uuid.UUID) -> List[Operation]:
        return []

    def on_validation_completed(
        self, searcher_state: SearcherState, request_id: uuid.UUID, metric: float, train_length: int
    ) -> List[Operation]:
        """The trial has ``metric`` (perhaps NaN) after ``train_length``. It waits for ValidateAfter or Close."""
        raise NotImplementedError

    def on_trial_exited_early(
        self, searcher_state: SearcherState, request_id: uuid.UUID, exited_reason: ExitedReason
    ) -> List[Operation]:
        """The trial failed for good, was killed, or found its hyperparameters invalid. ``on_trial_closed`` follows."""
        return []

    def on_trial_closed(self, searcher_state: SearcherState, request_id: uuid.UUID) -> List[Operation]:
        """The trial has ended. The search goes on until a Shutdown."""
        return []

    def progress(self, searcher_state: SearcherState) -> float:
        """Between 0 and 1."""
        return 0.0

    def save_method_state(self, path: Path) -> None:
        pass

    def load_method_state(self, path: Path) -> None:
        pass


# --- what runs it


class LocalSearchRunner:
    """Runs a search method in this process.

    ``searcher_dir`` (by default the folder "searcher_dir") keeps what a restart needs: use a new one for a new search.
    ``session`` defaults to that of ``det``: the user's own master, or that of DET_MASTER, as the owner, or as DET_USER.
    ``patience`` is for how many seconds a master that does not answer is waited for, each time.
    """

    def __init__(
        self,
        search_method: SearchMethod,
        searcher_dir: Union[None, str, os.PathLike[str]] = None,
        session: Optional[Session] = None,
        *,
        patience: float = 3600.0,
    ) -> None:
        self._method = search_method
        self._folder = Path("searcher_dir" if searcher_dir is None else searcher_dir)
        self._session = session
        self._patience = patience
        self._answered: Optional[Tuple[int, List[Json]]] = None  # the last event dealt with, and the answer to it
        self._key = ""
        self._kept_method = ""  # the name of the folder that holds the method's state
        self.state = SearcherState()

    def run(
        self,
        exp_config: Union[str, os.PathLike[str], Mapping[str, Any]],
        model_dir: Union[None, str, os.PathLike[str], Sequence[Json]] = None,
        includes: Optional[Iterable[Union[str, os.PathLike[str]]]] = None,
    ) -> int:
        """Create the experiment, or go on with the one in the folder, and answer its events until it has ended; its id.

        ``exp_config`` is a configuration whose searcher is ``custom``, or the name of its YAML file. ``model_dir`` is the context
        directory, or its files in wire form; ``includes`` are files and directories that are sent beside it. Raises
        MasterUnreachable when the master is away for longer than ``patience``, OSError when the file cannot be read, ConfigError,
        ContextError, and whatever the method raises: the event at which it did comes again after a restart.
        """
        if self._session is None:
            url = address.master_url()
            # One's own master may not run yet, or move to another port or login node while the search waits.
            master = url if url and os.environ.get("DET_MASTER") else address.own_finder()
            self._session = Session(master, token_at(url))
        self._load()
        if self.state.experiment_id is None:
            self.state.experiment_id = self._create(exp_config, model_dir, includes)
            self._save()
        experiment = self.state.experiment_id
        logger.info("experiment %d: searching", experiment)
        while not self.state.experiment_completed and not self._interrupted():
            for event in self._events(experiment):
                if "experimentInactive" in event:
                    self.state.experiment_completed = True
                    self._save()
                    logger.info("experiment %d: %s", experiment, event["experimentInactive"]["experimentState"])
                    break
                self._deal_with(experiment, event)
        return experiment

    def _interrupted(self) -> bool:
        """Whether the search is to go on in a later start of its program."""
        return False

    # --- events and answers

    def _events(self, experiment: int) -> List[Json]:
        session = self._session
        assert session is not None
        answer = self._patiently(
            lambda: session.get(
                f"/api/v1/experiments/{experiment}/searcher/events",
                params={"timeoutSeconds": _WAIT},
                timeout=_WAIT + 30,
            )
        )
        events: List[Json] = answer["searcherEvents"]
        return events

    def _deal_with(self, experiment: int, event: Json) -> None:
        """Decide, keep, send: killed between two of them, the next start goes on with what was kept."""
        number = int(event["id"])
        if number > self.state.last_event_id:
            operations = [operation.to_wire() for operation in self._decide(event)]
            self.state.last_event_id = number
            self._answered = number, operations
            self._save_method()
            self._save()
        answered = self._answered[1] if self._answered and self._answered[0] == number else []
        self._send(experiment, number, answered)

    def _decide(self, event: Json) -> List[Operation]:
        method, state = self._method, self.state
        kind = next((name for name in event if name != "id"), "")
        body: Json = event.get(kind) or {}
        if kind == "initialOperations":
            operations = method.initial_operations(state)
        elif kind == "trialCreated":
            request = uuid.UUID(body["requestId"])
            state.trials_created.add(request)
            state.trial_progress[request] = 0.0
            operations = method.on_trial_created(state, request)
        elif kind == "validationCompleted":
            request, length = uuid.UUID(body["requestId"]), int(body["validateAfterLength"])
            state.trial_progress[request] = float(length)
            operations = method.on_validation_completed(state, request, float(body["metric"]), length)
        elif kind == "trialExitedEarly":
            request = uuid.UUID(body["requestId"])
            state.failures.add(request)
            operations = method.on_trial_exited_early(state, request, ExitedReason(body["exitedReason"]))
        elif kind == "trialClosed":
            request = uuid.UUID(body["requestId"])
            state.trials_closed.add(request)
            operations = method.on_trial_closed(state, request)
        else:
            logger.warning("event %s is none that this release knows; it is passed over", event)
            return []
        return [*operations, Progress(min(1.0, max(0.0, float(method.progress(state)))))]

    def _send(self, experiment: int, number: int, operations: Sequence[Json]) -> None:
        session = self._session
        assert session is not None
        body = {"searcherOperations": list(operations), "triggeredByEvent": {"id": number}}
        path = f"/api/v1/experiments/{experiment}/searcher/operations"
        try:
            self._patiently(lambda: session.post(path, json=body, idempotent=True))
        except Refused:
            # The experiment may have ended meanwhile, perhaps by these very operations, said once before.
            if not any("experimentInactive" in event for event in self._events(experiment)):
                raise

    def _patiently(self, call: Callable[[], T]) -> T:
        deadline, before = time.monotonic() + self._patience, ""
        while True:
            try:
                return call()
            except (MasterUnreachable, NotTheMaster) as error:
                if time.monotonic() > deadline:
                    raise
                if str(error) != before:
                    logger.warning("%s; trying again for %.3g minutes", error, self._patience / 60)
                before = str(error)
                time.sleep(1.0)

    # --- what is kept

    @property
    def _file(self) -> Path:
        return self._folder / "search.json"

    def _load(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        saved = read_json(self._file)
        if saved is None:
            self._key = str(uuid.uuid4())
            self._save()
            return
        state = saved["state"]
        self._key = saved["key"]
        self.state = SearcherState(
            trials_created={uuid.UUID(text) for text in state["trials_created"]},
            trial_progress={uuid.UUID(text): length for text, length in state.get("trial_progress", {}).items()},
            trials_closed={uuid.UUID(text) for text in state["trials_closed"]},
            failures={uuid.UUID(text) for text in state["failures"]},
            last_event_id=state["last_event_id"],
            experiment_id=state["experiment_id"],
            experiment_completed=state["experiment_completed"],
        )
        self._answered = (saved["answered"], saved["operations"]) if saved["answered"] is not None else None
        self._kept_method = saved["method"]
        if self._kept_method:
            self._method.load_method_state(self._folder / self._kept_method)

    def _save_method(self) -> None:
        """Into a new folder, which counts once ``search.json`` names it."""
        self._kept_method = f"method-{self.state.last_event_id}-{uuid.uuid4().hex[:8]}"
        (self._folder / self._kept_method).mkdir(mode=0o700)
        self._method.save_method_state(self._folder / self._kept_method)

    def _save(self) -> None:
        state = self.state
        number, operations = self._answered or (None, [])
        write_json(
            self._file,
            {
                "key": self._key,
                "method": self._kept_method,
                "state": {
                    "trials_created": sorted(map(str, state.trials_created)),
                    "trial_progress": {str(trial): length for trial, length in state.trial_progress.items()},
                    "trials_closed": sorted(map(str, state.trials_closed)),
                    "failures": sorted(map(str, state.failures)),
                    "last_event_id": state.last_event_id,
                    "experiment_id": state.experiment_id,
                    "experiment_completed": state.experiment_completed,
                },
                "answered": number,
                "operations": operations,
            },
        )
        for other in self._folder.glob("method-*"):
            if other.name != self._kept_method:
                shutil.rmtree(other, ignore_errors=True)

    # --- the experiment

    def _create(
        self,
        config: Union[str, os.PathLike[str], Mapping[str, Any]],
        model_dir: Union[None, str, os.PathLike[str], Sequence[Json]],
        includes: Optional[Iterable[Union[str, os.PathLike[str]]]],
    ) -> int:
        session = self._session
        assert session is not None
        earlier = self._created_before(session)
        if earlier is not None:
            return earlier
        text = self._with_key(config)
        try:
            from dethpc.context.collect import collect  # needs pathspec, which a compute node may do without
        except ImportError as error:
            raise ContextError(
                f"this Python cannot create experiments ({error}); run the search where dethpc is installed"
            ) from error
        whole = isinstance(model_dir, (str, os.PathLike))
        context = collect(Path(model_dir) if whole else None, [Path(path) for path in includes or ()])  # type: ignore[arg-type]
        files = [*([] if whole else model_dir or []), *context.model_definition()]  # type: ignore[misc]
        return int(experiments.create(session, text, files)["experiment"]["id"])

    def _with_key(self, config: Union[str, os.PathLike[str], Mapping[str, Any]]) -> str:
        """The configuration as YAML, with what tells this search's experiment from others."""
        if isinstance(config, Mapping):
            return json.dumps({**config, "data": {**(config.get("data") or {}), _KEY: self._key}})  # JSON is YAML
        try:
            from dethpc.config.loading import with_overrides  # needs pydantic
        except ImportError as error:
            raise ContextError(
                f"this Python cannot read {config} ({error}): read it with a YAML library, and hand over the mapping"
            ) from error
        return with_overrides(
            Path(config).read_text(encoding="utf-8"), [f'data.{_KEY}="{self._key}"'], file=str(config)
        )

    def _created_before(self, session: Session) -> Optional[int]:
        """The experiment of an earlier start that was killed before it could note its id."""
        listed = self._patiently(lambda: experiments.listing(session, newest_first=True))["experiments"]
        for experiment in listed:
            if ((experiment.get("config") or {}).get("data") or {}).get(_KEY) == self._key:
                return int(experiment["id"])
        return None


class RemoteSearchRunner(LocalSearchRunner):
    """Runs a search method in a job: the entrypoint of an experiment with one trial, usually without slots, or of a task.

    What a restart needs lies in ``$DET_TRIAL_DIR``, so the search goes on when its job is preempted, fails, or the trial is paused
    and goes on. In a task, which has no such folder, it lies in ``searcher_dir`` of the folder that the task starts in.
    ``context`` is the Core API's, as published programs hand it over: with it, ``run`` returns before the search has ended when the
    job is asked to stop.
    """

    def __init__(
        self,
        search_method: SearchMethod,
        context: Any = None,
        session: Optional[Session] = None,
        *,
        patience: float = 3600.0,
    ) -> None:
        folder = os.environ.get("DET_TRIAL_DIR")
        super().__init__(search_method, Path(folder, "searcher") if folder else None, session, patience=patience)
        self._context = context

    def _interrupted(self) -> bool:
        return self._context is not None and bool(self._context.preempt.should_preempt())
