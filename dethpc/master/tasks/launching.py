"""From the configuration of a task and its files to a row that wants a run."""

from __future__ import annotations

import contextlib
import shlex
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from dethpc.config import task as task_config
from dethpc.config.experiment import ExperimentConfig
from dethpc.config.source import dump
from dethpc.config.task import LoadedTask, TaskConfig
from dethpc.config.template import Template, laid_over
from dethpc.domain.environment import Environment
from dethpc.domain.facts import Attempt, Row, Run, Task
from dethpc.domain.ids import OWNER_ID
from dethpc.domain.records import UNCATEGORIZED, ConfigPolicy, Workspace
from dethpc.domain.states import RunState, TaskKind
from dethpc.domain.task_settings import TaskSettings
from dethpc.domain.text.measures import duration
from dethpc.engine import events
from dethpc.engine.tasks import new_task
from dethpc.errors import ConfigError, ContextError, NotFound, Refused
from dethpc.master.durable import contexts
from dethpc.master.durable.ledger import Plan
from dethpc.master.durable.records import RecordReader
from dethpc.master.experiments import config_policies, environments, filing
from dethpc.master.experiments.notes import setting_warnings
from dethpc.master.experiments.notes.requested_resources import translations
from dethpc.master.parts import Parts
from dethpc.master.submitting.prepare import JobBuilder
from dethpc.master.tasks.interactive import TEMPLATES, StartOptions, service_state, start_script
from dethpc.scheduler.slurm.script import all_options
from dethpc.state import queries
from dethpc.state.queries import Order
from dethpc.state.queries.page import Page

_LONGEST_NAME = 60


class NewTask(NamedTuple):
    """What a client sends for a task. ``config``: a mapping, or YAML. ``defaults``: what its kind gives to the configuration.
    ``environment``: that of the client's shell; None: it sends none. ``services`` and ``details``: see ``TaskSettings``.
    ``files_of``: whose files it begins with where it brings none. Its environment is that of the task that it is forked from, else
    of its parent, where it brings none. ``user_id``: who launches it."""

    kind: TaskKind
    config: Mapping[str, Any] | str
    context_targz: bytes | None = None
    workspace: Workspace | None = None
    project_id: int = UNCATEGORIZED
    template: Template | None = None
    policies: Sequence[ConfigPolicy] = ()
    environment: bytes | None = None
    defaults: Mapping[str, Any] = {}
    services: Sequence[Mapping[str, Any]] = ()
    details: Mapping[str, Any] = {}
    parent: Task | None = None
    forked_from: Task | None = None
    files_of: Task | None = None
    no_pause: bool = False
    user_id: int = OWNER_ID


class Launcher:
    """Every method may be called from any thread, and raises SchedulerUnavailable while nothing is known of the cluster."""

    def __init__(self, parts: Parts, builder: JobBuilder) -> None:
        self._home = parts.home
        self._ledger = parts.ledger
        self._store = parts.store
        self._admission = builder.admission
        self._templates = None if parts.site.templates is None else Path(parts.site.templates)
        self._has_limits = parts.installation.scheduler == "slurm"
        self._idle_since: dict[str, float] = {}  # by task

    def launch(self, owner: str, request: NewTask) -> tuple[Task, list[str]]:
        """The task, and what its owner should know of it. Raises ConfigError with every mistake, ContextError, Refused."""
        sent = environments.sent(request.environment)
        config, notes = self._resolved(request, sent)
        targz = request.context_targz
        sha256 = self._inherited(request) if targz is None else contexts.keep(self._home, targz)
        id = str(uuid.uuid4())
        environments.keep(self._home, id, sent or self._of_relative(request) or environments.own())
        event = _wish(id, owner, config, request, sha256)
        try:
            rows = self._ledger.do_after(lambda: self._within(request.workspace, event))
        except (Refused, NotFound):
            environments.drop(self._home, id)
            raise
        if targz is not None:
            contexts.keep(self._home, targz)  # a deletion may have come between
        return next(row for row in rows if isinstance(row, Task)), notes

    def _within(self, workspace: Workspace | None, event: events.CreateTask) -> events.Event:
        """The event, when nobody can delete the workspace in between. Raises NotFound."""
        if workspace is not None:
            filing.workspace(RecordReader(self._store), workspace.id)
        return event

    def preview(self, owner: str, request: NewTask) -> tuple[Task, list[str]]:
        """What ``launch`` would make of the request; the task has no id. Nothing is stored. Raises as that does."""
        config, notes = self._resolved(request, environments.sent(request.environment))
        return new_task(_wish("", owner, config, request, "")), notes

    def _resolved(self, request: NewTask, sent: Environment | None) -> tuple[TaskConfig, list[str]]:
        """Its configuration with all defaults, and what its owner should know of it. Raises ConfigError, ContextError."""
        text = request.config if isinstance(request.config, str) else dump(dict(request.config))
        try:
            with (
                laid_over(text, request.template) as users_yaml,
                config_policies.imposed(users_yaml, request.policies) as whole,
            ):
                loaded = task_config.load(whole, defaults=self._defaults(request, whole))
                config, notes = self._checked(loaded, request.kind, sent)
            notes = [*config_policies.overridden(users_yaml, whole, request.policies), *notes]
            config = config_policies.bounded_task(config, request.policies)
        except ConfigError as error:
            raise error if isinstance(request.config, str) else _without_lines(error) from None
        return self._started(request.kind, config), notes

    def _defaults(self, request: NewTask, text: str) -> dict[str, Any]:
        """What its kind gives, over what its workspace gives, over what the site gives. Raises ConfigError."""
        site: dict[str, Any] = {"resources": {"resource_pool": self._admission.default_pool()}}
        own = dict(request.defaults)
        if request.workspace is not None and (request.workspace.pool or request.workspace.aux_pool):
            slots = task_config.load(text, defaults={**site, **own}).config.resources.slots
            site["resources"] = filing.defaults(request.workspace, slots).get("resources", site["resources"])
        return {**site, **own, "resources": {**site["resources"], **own.get("resources", {})}}

    def _checked(self, loaded: LoadedTask, kind: TaskKind, sent: Environment | None) -> tuple[TaskConfig, list[str]]:
        """The configuration under its name, and what its owner should know. Raises ConfigError, ContextError."""
        config = loaded.config
        if not (config.name or config.description):
            config = config.model_copy(update={"description": _name(kind, config)})
        job = config.of_job()
        try:
            self._admission.check(job)
            inside = self._admission.container(job)
        except ConfigError as error:
            raise task_config.in_words_of_tasks(error) from None
        notes = [*loaded.warnings, *(loaded.without_container if inside is None else inside.notes(job))]
        if inside is None and sent is not None:
            notes += setting_warnings.of_server(kind, sent, job.environment)
        return config, [*notes, *setting_warnings.notes(job.environment), *_without_effect(config, kind)]

    def _started(self, kind: TaskKind, config: TaskConfig) -> TaskConfig:
        """With what starts a notebook, a TensorBoard or a shell as its entrypoint."""
        if kind not in TEMPLATES:
            return config
        options = StartOptions(
            None if config.idle_timeout is None else task_config.seconds(config.idle_timeout),
            config.notebook_idle_type or "",
            config.work_dir or "",
            config.tensorboard_args or (),
        )
        return config.model_copy(update={"entrypoint": start_script(kind, options, self._templates)})

    def _of_relative(self, request: NewTask) -> Environment | None:
        """Raises Refused where it was removed."""
        relative = request.forked_from or request.parent
        if relative is None:
            return None
        environment = environments.of_job(self._home, relative.queue_id)
        if environment is None and ExperimentConfig.from_json(TaskSettings.of(relative).config).keeps_environment:
            raise Refused(
                f"the environment of task {relative.id} is not kept any more; det task create makes a new task"
            )
        return environment

    def _inherited(self, request: NewTask) -> str:
        """Raises ContextError, also where it was removed."""
        if request.files_of is not None:
            self.context(request.files_of)
            return TaskSettings.of(request.files_of).context_sha256
        raise ContextError("the task has no files; send an empty list for none")

    # --- tasks that were launched

    def task(self, task_id: str, *kinds: TaskKind) -> Task:
        """The launched task of one of the kinds, of any where none is named. Raises NotFound."""
        with self._store.read() as connection:
            row = queries.task(connection, task_id)
        if not row.kind.launched or (kinds and row.kind not in kinds):
            nouns = ("generic task" if kind is TaskKind.GENERIC else kind.value.lower() for kind in kinds)
            this = f"that of trial {row.trial_id}" if row.trial_id else f"of the kind {row.kind.value}"
            raise NotFound(f"{' or '.join(nouns) or 'task'} {task_id} not found: the task of this id is {this}")
        return row

    def ends_at(self, task: Task, run: Run) -> float | None:
        """When the time limit of its job ends the run of a task; None where that is unknown, or it does not run."""
        if not self._has_limits or run.state is not RunState.RUNNING or run.started_at is None:
            return None
        limit = self._admission.time_limit(ExperimentConfig.from_json(TaskSettings.of(task).config))
        return None if limit is None else run.started_at + limit

    def is_ready(self, task: Task, attempt: Attempt) -> bool:
        """Whether what the task serves answers; any other task is ready once it runs."""
        state = service_state(self._home, task, attempt.run_id, attempt.number)
        return state is None or state.ready

    def idle_ends_at(self, task: Task, run: Run) -> float | None:
        """When its idle_timeout ends the run of a task unless it is used; None where it is in use, or does not run."""
        if run.state is not RunState.RUNNING:
            return None
        state = service_state(self._home, task, run.id, run.attempt)
        return None if state is None else state.idle_ends_at

    def kill(self, task_id: str, *kinds: TaskKind) -> Task:
        """End it; one that has ended stays as it is. ``kinds`` as for ``task``. Raises NotFound."""
        row = self.task(task_id, *kinds)
        return row if row.state.terminal else _of(self._ledger.do(events.KillTask(task_id, time.time())), row)

    def report_idle(self, task: Task, *, idle: bool) -> None:
        """A notebook's own word, of one that a site starts by its own means: it ends when that has said for as long as its
        idle_timeout that it is idle."""
        timeout = TaskSettings.of(task).options.get("idle_timeout")
        if task.state.terminal or not idle:
            self._idle_since.pop(task.id, None)
            return
        now = time.monotonic()
        since = self._idle_since.setdefault(task.id, now)
        if timeout is None or now - since < task_config.seconds(timeout):
            return
        reason = f"idle for {duration(task_config.seconds(timeout))} (idle_timeout)"
        with contextlib.suppress(NotFound):  # it has ended meanwhile
            self._ledger.do(events.KillTask(task.id, time.time(), reason))
        self._idle_since.pop(task.id, None)

    def live_tree(self, task: Task, *, from_root: bool) -> list[Task]:
        """The task and those that descend from it, or with ``from_root`` from its first ancestor, as far as they have not ended."""
        while from_root and (parent := TaskSettings.of(task).parent_id):
            task = self.task(parent)
        ids = {task.id}
        # Each parent is older than its children, whatever of them has ended.
        with self._store.read() as connection:
            tasks = queries.list_tasks(connection, TaskKind.GENERIC, None, Order("start_time"), Page(0, None))[0]
        for child in tasks:
            if TaskSettings.of(child).parent_id in ids:
                ids.add(child.id)
        return [member for member in tasks if member.id in ids and not member.state.terminal]

    def kill_all(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            with contextlib.suppress(NotFound):  # it has ended meanwhile
                self.kill(task.id)

    def delete_workspace(self, row: Workspace) -> None:
        """Mark it as deleted, and kill the tasks that have not ended in it: a master that is killed has done both or neither."""

        def plan() -> Plan:
            now, reason = time.time(), f"workspace {row.name!r} was deleted"
            tasks = [
                task for task in self._ledger.state.tasks.values() if task.kind.launched and not task.state.terminal
            ]
            inside = [task.id for task in tasks if TaskSettings.of(task).workspace_id == row.id]
            return Plan([events.KillTask(id, now, reason) for id in inside], [replace(row, deleted=True)])

        self._ledger.do_planned(plan)

    def context(self, task: Task) -> bytes:
        """The files that it starts beside, as tar.gz. Raises ContextError where they are gone or damaged."""
        return contexts.stored(self._home, TaskSettings.of(task).context_sha256, f"task {task.id}")

    def pause(self, task_id: str) -> Task:
        """Raises NotFound, Refused."""
        row = self._open(task_id)
        return _of(self._ledger.do(events.PauseTask(task_id, time.time())), row)

    def unpause(self, task_id: str) -> Task:
        """Raises NotFound, Refused."""
        row = self._open(task_id)
        return _of(self._ledger.do(events.UnpauseTask(task_id, time.time())), row)

    def _open(self, task_id: str) -> Task:
        """Raises NotFound; Refused for one that has ended."""
        row = self.task(task_id)
        if row.state.terminal:
            raise Refused(
                f"task {task_id} has ended ({row.state.value}); det task fork {task_id} creates another like it"
            )
        return row

    def set_priority(self, row: Task, priority: int, policies: Sequence[ConfigPolicy]) -> Task:
        """Raises NotFound, Refused."""
        config_policies.check_changes({"priority": priority}, policies)
        change = events.QueueChange(row.queue_id, priority=priority)
        return _of(self._ledger.do(events.UpdateQueue([change], time.time())), row)


def _wish(id: str, owner: str, config: TaskConfig, request: NewTask, context_sha256: str) -> events.CreateTask:
    """The event that creates the task of this configuration."""
    job, resources = config.of_job().with_environment(), config.resources
    settings = TaskSettings(
        config=job.to_json(),
        context_sha256=context_sha256,
        workspace_id=request.workspace.id if request.workspace else UNCATEGORIZED,
        project_id=request.project_id,
        options=_options(config),
        services=list(request.services),
        details=dict(request.details),
        parent_id=request.parent.id if request.parent else "",
        forked_from=request.forked_from.id if request.forked_from else "",
        no_pause=request.no_pause,
    )
    return events.CreateTask(
        id=id,
        kind=request.kind,
        owner=owner,
        name=job.name,
        config=settings.to_json(),
        pool=resources.resource_pool,
        slots=resources.slots,
        at=time.time(),
        **({} if resources.priority is None else {"priority": resources.priority}),
        weight=resources.weight,
        user_id=request.user_id,
    )


_SERVICES = (TaskKind.NOTEBOOK, TaskKind.SHELL, TaskKind.TENSORBOARD)
_KINDS_OF_FIELDS = {
    "idle_timeout": _SERVICES,
    "notebook_idle_type": (TaskKind.NOTEBOOK,),
    "tensorboard_args": (TaskKind.TENSORBOARD,),
}


def _without_effect(config: TaskConfig, kind: TaskKind) -> Iterator[str]:
    """Fields that are set, and mean nothing for a task of this kind. Raises ConfigError for options that sbatch would not take."""
    yield from translations(all_options(config.slurm.sbatch_args or []), "slurm.sbatch_args")
    for name, kinds in _KINDS_OF_FIELDS.items():
        if getattr(config, name) is not None and kind not in kinds:
            whose = " and ".join(kind_of_field.value.lower() for kind_of_field in kinds)
            yield f"{name} has no effect on a {kind.value.lower()} task: it is for {whose} tasks"
    for name in ("workspace", "project"):
        if getattr(config, name, None):
            yield f"{name} has no effect on a task: name the workspace where it is launched, as with --workspace-name"


def _without_lines(error: ConfigError) -> ConfigError:
    """A mapping has no lines; what a template or a policy brought is said to be there."""
    for problem in error.problems:
        if problem.file == "config":
            problem.file, problem.line = None, None
    return ConfigError(error.problems)


def _of(rows: Sequence[Row], before: Task) -> Task:
    """The task as the rows have it, where they have it."""
    return next((row for row in rows if isinstance(row, Task) and row.id == before.id), before)


def _options(config: TaskConfig) -> dict[str, Any]:
    """What no experiment has."""
    names = {
        "description",
        "work_dir",
        "idle_timeout",
        "notebook_idle_type",
        "tensorboard_args",
        "workspace",
        "project",
    }
    return config.model_dump(mode="json", include=names)


def _name(kind: TaskKind, config: TaskConfig) -> str:
    """``Command (nvidia-smi -L)``."""
    entrypoint = config.entrypoint
    argv = [entrypoint] if isinstance(entrypoint, str) else entrypoint
    line = " ".join((argv[0] if len(argv) == 1 else shlex.join(argv)).split())
    title = "TensorBoard" if kind is TaskKind.TENSORBOARD else kind.value.capitalize()
    if kind not in (TaskKind.COMMAND, TaskKind.GENERIC):
        return title
    return f"{title} ({line if len(line) <= _LONGEST_NAME else line[: _LONGEST_NAME - 3] + '...'})"


def shown(task: Task) -> dict[str, Any]:
    """Its configuration with all defaults filled in, in the shape that Determined shows."""
    settings = TaskSettings.of(task)
    job, options = dict(settings.config), dict(settings.options)
    resources = dict(job.get("resources") or {})
    resources["slots"] = resources.pop("slots_per_trial", 0)
    for name in ("max_slots", "native_parallel"):
        resources.pop(name, None)
    resources.update(priority=task.priority, weight=task.weight, resource_pool=task.pool)
    same = ("entrypoint", "environment", "bind_mounts", "slurm", "pbs", "debug")
    return {
        "description": task.name,
        **{name: value for name, value in options.items() if value is not None and name != "description"},
        **{name: job[name] for name in same if name in job},
        "resources": resources,
    }
