"""Images of containers that runs wait for: one task of kind IMAGE_PULL brings each of them into the cache, for all.

Nothing is kept here but what is asked of the cache: which image a run needs follows from its trial and its configuration, and who
pulls it from the tasks. A pull that ended after a run came into being is that run's answer.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.sections.environment import SLOT_TYPES
from dethpc.containers import names
from dethpc.domain.facts import Run, Task, Trial
from dethpc.domain.states import State, TaskKind
from dethpc.domain.task_settings import TaskSettings
from dethpc.engine import ClusterState, events
from dethpc.engine.changes import TrialChanges
from dethpc.errors import ConfigError, NotFound, Refused, SchedulerUnavailable, SubmitRejected
from dethpc.exec.images.cache import Cache, Entry
from dethpc.insight.waiting import WAITS_FOR_IMAGE
from dethpc.master.files import garbage_runs
from dethpc.master.parts import Parts
from dethpc.master.submitting import run_container
from dethpc.master.submitting.admission import Admission
from dethpc.master.submitting.trial_shape import pool_of
from dethpc.rundir.files import sealed, write_json
from dethpc.state import queries

ORDER = "image.json"
"""The file in a run's directory that says what is to be pulled, with a password where it needs one (0600)."""

SEEN_WITHIN = 120.0
"""Seconds in which this machine must see what a compute node has written: file systems remember for a while what is not there."""

FIRST = 1  # priority: what others wait for


@dataclass(frozen=True)
class Target:
    """An image from a registry, in the format of a runtime, for a trial."""

    image: names.Image
    format: str

    @property
    def title(self) -> str:
        return f"Image pull {self.image.name} ({self.format})"


class ImageUser(NamedTuple):
    """Whose run starts from an image: an experiment's, by its number, or a task's. ``digest``: of that which its trial has had."""

    id: int | str
    owner: str
    pool: str
    created_at: float
    config: ExperimentConfig
    digest: str = ""
    trial_id: int | None = None


class Images:
    """``missing`` is for the reconciler's thread, all else for any."""

    def __init__(self, parts: Parts, admission: Admission) -> None:
        self._ledger = parts.ledger
        self._store = parts.store
        self._site = parts.site.images
        self._pools = parts.site
        self._admission = admission
        self._who = f"{os.getuid()} {parts.home.root}"
        self.cache = Cache(Path(self._site.cache) if self._site.cache else parts.home.root / "images")

    # --- what a run needs

    def missing(self, run: Run) -> str:
        """What the run waits for, in words; "" when its image is there, whose digest is its trial's then. Raises SubmitRejected
        when it cannot be had, OSError."""
        user = self._user(run)
        needed = self._target(user.config, user.digest) if user is not None else None
        if user is None or needed is None:
            return ""
        digest = self._digest(needed, user)
        if digest and self.cache.has(needed.format, digest):
            if self.cache.lacks_python(needed.format, digest):
                raise SubmitRejected(f"image {needed.image.name} has no python3; runs need Python 3.9 or newer inside")
            self.cache.need(needed.format, digest, self._who)
            if user.trial_id is not None and user.digest != digest:
                self._ledger.do(events.DescribeTrial(user.trial_id, TrialChanges(image=digest), time.time()))
            return ""
        return self._pulled(needed, run, user, forced=digest is None)

    def _user(self, run: Run) -> ImageUser | None:
        """None: the run is of a task of the master's own."""
        state = self._ledger.state
        trial, task = state.trial_of(run), state.tasks.get(run.task_id)
        experiment = state.experiments.get(task.experiment_id or 0) if task is not None else None
        if trial is not None and experiment is not None:
            row = experiment.row
            return ImageUser(row.id, row.owner, row.pool, row.created_at, experiment.config, trial.image, trial.id)
        if task is None or not task.kind.launched:
            return None
        config = ExperimentConfig.from_json(TaskSettings.of(task).config)
        return ImageUser(task.id, task.owner, task.pool, task.created_at, config)

    def path(self, config: ExperimentConfig, trial: Trial) -> Path | None:
        """Where the image of a run lies that misses none; None: it has none from a registry. Raises SubmitRejected."""
        needed = self._target(config, trial.image)
        return self.cache.path(needed.format, trial.image) if needed is not None and trial.image else None

    def digest(self, config: ExperimentConfig) -> str:
        """Of the image that a run of a task starts from, as it is in the cache now; "" without one. Raises SubmitRejected."""
        needed = self._target(config, "")
        cached = self.cache.named(needed.image.name) if needed is not None else None
        return cached.digest if cached is not None else ""

    def _target(self, config: ExperimentConfig, digest: str) -> Target | None:
        """Raises SubmitRejected for a name that is none."""
        pool = pool_of(self._pools, config.resources.resource_pool)
        if not pool.container:
            return None
        try:
            inside = run_container.of(pool, config, self._slot_type(config))
        except ConfigError as error:
            raise SubmitRejected(str(error)) from error
        if inside is None or inside.remote is None:
            return None
        image, format = inside.remote, names.FORMATS[inside.runtime.name]
        return Target(image.at(digest) if digest else image, format)

    def _slot_type(self, config: ExperimentConfig) -> str:
        """That of its pool; any, where the scheduler does not say and all are alike."""
        try:
            return self._admission.shape(config).slot_type
        except (SchedulerUnavailable, ValueError):
            return SLOT_TYPES[0]

    def _digest(self, needed: Target, user: ImageUser) -> str | None:
        """That of the image that the run is to have; "" while nobody has asked, None when it is to be asked again."""
        if user.digest:
            return user.digest
        cached = self.cache.named(needed.image.name)
        if user.config.environment.force_pull_image and not needed.image.digest:
            return cached.digest if cached is not None and cached.at >= user.created_at else None
        return cached.digest if cached is not None else ""

    # --- who pulls it

    def _pulled(self, needed: Target, run: Run, user: ImageUser, *, forced: bool) -> str:
        about = f"{WAITS_FOR_IMAGE}{needed.image.name}: "
        live = next((task for task in self.pulls() if _same(task, needed)), None)
        if live is not None:
            return about + self.status(live)
        with self._store.read() as connection:
            last = queries.last_pull(connection, needed.title)
            alike = last is not None and self._auth(connection, last) == _auth_of(user.config)
        if last is not None and alike and (last.ended_at or 0.0) >= run.created_at:
            if last.state is not State.COMPLETED:
                raise SubmitRejected(f"image {needed.image.name} cannot be pulled: {last.reason}")
            if time.time() < (last.ended_at or 0.0) + SEEN_WITHIN:
                return f"{about}it was pulled, and is not seen here yet"
            raise SubmitRejected(
                f"image {needed.image.name} was pulled, and is not in {self.cache.root} as this machine sees it; "
                "images.cache of the site configuration must be a folder that all nodes share"
            )
        order = self._task(
            needed, user.owner, user.pool, garbage_runs.whose(user.config), auth_of=user.id, force=forced
        )
        self._ledger.do(order)
        return f"{about}its pull is queued"

    def order(self, text: str, pool: str, format: str, owner: str, *, force: bool) -> str:
        """Pull an image that nobody waits for; the id of the task that does, which may be under way. Raises Refused."""
        try:
            image = names.parse(text)
        except ValueError as error:
            raise Refused(str(error)) from None
        if not image.remote:
            raise Refused(f"{text} is a path: there is nothing to pull")
        pool = pool or self._admission.default_pool()
        runtime = next((offer.runtime for offer in pool_of(self._pools, pool).container), "none")
        needed = Target(image, format or names.FORMATS.get(runtime, ""))
        if needed.format not in set(names.FORMATS.values()):
            allowed = ", ".join(sorted(set(names.FORMATS.values())))
            raise Refused(f"pool {pool or 'of no name'} has no container runtime: say which format, one of {allowed}")
        live = next((task for task in self.pulls() if _same(task, needed)), None)
        if live is not None:
            return live.id
        event = self._task(needed, owner, pool, [], auth_of=None, force=force)
        self._ledger.do(event)
        return event.id

    def cancel(self, text: str) -> list[str]:
        """End the pulls of an image that are under way, in whatever format; the ids of their tasks. Trials that wait for one
        end with it. Raises Refused for a name that is none, NotFound where nobody pulls it."""
        try:
            name = names.parse(text).name
        except ValueError as error:
            raise Refused(str(error)) from None
        live = [task for task in self.pulls() if task.config.get("image") == name]
        if not live:
            raise NotFound(f"no pull of {name} is under way; det image list shows those that are")
        for task in live:
            self._ledger.do(events.KillTask(task.id, time.time()))
        return [task.id for task in live]

    def pulls(self) -> Sequence[Task]:
        """The tasks that pull, and have not ended."""
        return self._ledger.look(
            lambda state: [
                task for task in state.tasks.values() if task.kind is TaskKind.IMAGE_PULL and not task.state.terminal
            ]
        )

    def status(self, task: Task) -> str:
        """How far the task is."""
        if not any(run.task_id == task.id and run.attempt >= 0 for run in list(self._ledger.state.runs.values())):
            return "its pull is queued"
        progress = self.cache.progress(task.config.get("image", ""), task.config.get("format", ""))
        step, done, total = str(progress.get("step") or "pulling"), progress.get("done"), progress.get("total")
        if isinstance(done, int) and isinstance(total, int) and total > 0:
            return f"{step}, {min(100, 100 * done // total) // 10 * 10} %"
        return step

    def _task(
        self, needed: Target, owner: str, pool: str, sbatch_args: list[str], *, auth_of: int | str | None, force: bool
    ) -> events.CreateTask:
        config: dict[str, Any] = {"image": needed.image.name, "format": needed.format, "force": force}
        if auth_of is not None:
            config["auth_of"] = auth_of
        return events.CreateTask(
            id=str(uuid4()),
            kind=TaskKind.IMAGE_PULL,
            owner=owner,
            name=needed.title,
            config={**config, "sbatch_args": sbatch_args},
            pool=self._site.pool or pool,
            slots=0,
            at=time.time(),
            priority=FIRST,
        )

    # --- the job

    def ordered(self, task: Task, file: Path) -> ExperimentConfig:
        """Write what the task's job is to do into ``file``; the configuration of that job. Raises OSError."""
        from dethpc.exec.images.pull import Order  # it loads what a job pulls images with

        request, site = task.config, self._site
        order = Order(cache=str(self.cache.root), owner=f"task {task.id}", remove=request.get("remove") or [])
        if request.get("image"):
            image = names.parse(request["image"])
            with self._store.read() as connection:
                auth = self._auth(connection, task)
            order = dataclasses.replace(
                order,
                name=image.name,
                format=request["format"],
                registry=image.registry,
                repository=image.repository,
                reference=image.digest or image.tag,
                is_sif=image.kind == names.ORAS,
                force=bool(request.get("force")),
                mirrors=list(site.mirrors.get(image.registry, [])),
                insecure=list(site.insecure),
                auth=auth,
                auth_file=site.auth_file or "",
                scratch=site.scratch or "",
            )
        write_json(file, sealed(order.to_json()), durable=False)
        return garbage_runs.job(task.name, file, task.pool, request.get("sbatch_args") or [], "dethpc.exec.images")

    def _auth(self, connection: Any, task: Task) -> dict[str, Any]:
        """The credentials of the experiment, or of the other task, for which the task pulls."""
        user = task.config.get("auth_of")
        try:
            if isinstance(user, int):
                config = queries.experiment(connection, user).config
            elif user is not None:
                config = dict(TaskSettings.of(queries.task(connection, user)).config)
            else:
                return {}
        except NotFound:
            return {}
        return _auth_of(ExperimentConfig.from_json(config))

    # --- what is there, and what may go

    def unneeded(self) -> list[Entry]:
        """Images that no experiment of this master needs which has not ended, and no run of another one that shares the cache has
        started from of late."""
        in_use = self._ledger.look(_needed) | self._usual()
        cached = {self.cache.named(name) for name in in_use}
        digests = in_use | {entry.digest for entry in cached if entry is not None}
        others = self.cache.needed_by_others(self._who)
        free = [entry for entry in self.cache.entries() if entry.digest not in digests]
        for entry in free:
            self.cache.need_no_more(entry.format, entry.digest, self._who)
        return [entry for entry in free if (entry.format, entry.digest) not in others]

    def _usual(self) -> set[str]:
        """Names in full of the images that pools give to experiments which name none."""
        offered = [offer.image for pool in self._pools.pools.values() for offer in pool.container]
        return {name for image in offered for kind in SLOT_TYPES if (name := _full(getattr(image, kind)))}

    def remove(self, requested: Sequence[tuple[str, str]], owner: str) -> int:
        """Take these away, by format and digest, as far as nobody needs them; a task removes their files. How many go."""
        free = {(entry.format, entry.digest) for entry in self.unneeded()}
        paths = [path for image in requested if image in free and (path := self.cache.put_aside(*image)) is not None]
        if paths:
            self._ledger.do(
                events.CreateTask(
                    id=str(uuid4()),
                    kind=TaskKind.IMAGE_PULL,
                    owner=owner,
                    name=f"Image prune ({len(paths)})",
                    config={"remove": [str(path) for path in paths]},
                    pool=self._site.pool or self._admission.default_pool(),
                    slots=0,
                    at=time.time(),
                )
            )
        return len(paths)


def _same(task: Task, needed: Target) -> bool:
    return (task.config.get("image"), task.config.get("format")) == (needed.image.name, needed.format)


def _auth_of(config: ExperimentConfig) -> dict[str, Any]:
    auth = config.environment.registry_auth
    return {} if auth is None else {key: value for key, value in auth.model_dump().items() if value}


def _needed(state: ClusterState) -> set[str]:
    """Digests, and names in full, of what experiments that have not ended start from."""
    images: set[str] = set()
    for experiment in state.experiments.values():
        if experiment.row.state.terminal:
            continue
        image = experiment.config.environment.image
        images |= {name for kind in SLOT_TYPES if (name := _full(getattr(image, kind)))}
        images.update(trial.image for trial in experiment.trials)
    for task in state.tasks.values():
        if task.kind.launched and not task.state.terminal:
            image = ExperimentConfig.from_json(TaskSettings.of(task).config).environment.image
            images |= {name for kind in SLOT_TYPES if (name := _full(getattr(image, kind)))}
    return images


def _full(text: str | None) -> str:
    """The name in full of an image of a registry; "" for anything else."""
    try:
        parsed = names.parse(text or "")
    except ValueError:
        return ""
    return parsed.name if parsed.remote else ""
