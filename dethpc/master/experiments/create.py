"""Creation of experiments: from a configuration and a context, for runs elsewhere, or from a run that was submitted by hand."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dethpc import storage
from dethpc.config.continued import continued
from dethpc.config.experiment import ExperimentConfig
from dethpc.config.loading import load as load_config
from dethpc.config.secrets import revealed
from dethpc.config.sections.searcher import WarmStart
from dethpc.config.source import dump, read
from dethpc.config.template import Template, laid_over
from dethpc.config.wording import did_you_mean
from dethpc.domain.environment import Environment
from dethpc.domain.facts import Checkpoint, Experiment, Trial
from dethpc.domain.ids import OWNER_ID
from dethpc.domain.records import UNCATEGORIZED, ConfigPolicy, Workspace
from dethpc.domain.secrets import MASK
from dethpc.domain.states import CheckpointState, State, TaskKind
from dethpc.engine import events
from dethpc.errors import ConfigError, DethpcError, NotFound, Problem, Refused
from dethpc.master.durable import contexts
from dethpc.master.durable.records import RecordReader
from dethpc.master.experiments import config_policies, environments, filing, standalone
from dethpc.master.experiments.notes import (
    batch_scripts,
    code_notes,
    installs,
    prospects,
    requested_resources,
    setting_warnings,
)
from dethpc.master.experiments.unmanaged import NO_ENTRYPOINT, Unmanaged, config_of
from dethpc.master.parts import Parts
from dethpc.master.submitting.prepare import JobBuilder, Submission
from dethpc.master.watching.foreign_checkpoints import of_others
from dethpc.searcher import draws
from dethpc.state import queries
from dethpc.state.store import SqlStore


class Notices(NamedTuple):
    """What the owner of an experiment should know of it."""

    notes: list[str]
    of_config: list[str]
    """What the text of its configuration gives rise to, as ``Loaded`` has it: warnings, and fields of older forms."""


class NewExperiment(NamedTuple):
    """What a client sends for an experiment. ``workspace``: what its project's gives to the configuration counts. ``environment``:
    that of its shell; None: it sends none. ``visible``: what its creator may see; None: everything. ``user_id``: who creates it."""

    config_yaml: str
    context_targz: bytes = b""
    activate: bool = True
    parent_id: int | None = None
    project_id: int = UNCATEGORIZED
    workspace: Workspace | None = None
    validate_only: bool = False
    template: Template | None = None
    policies: Sequence[ConfigPolicy] = ()
    environment: bytes | None = None
    visible: RecordReader | None = None
    user_id: int = OWNER_ID


class Creator:
    """Every method may be called from any thread, and raises SchedulerUnavailable while nothing is known of the cluster."""

    def __init__(self, parts: Parts, builder: JobBuilder, unmanaged: Unmanaged) -> None:
        self._home = parts.home
        self._ledger = parts.ledger
        self._store = parts.store
        self._scheduler = parts.scheduler
        self._installation = parts.installation
        self._admission = builder.admission
        self._builder = builder
        self._unmanaged = unmanaged
        self._importing = threading.Lock()  # so that two requests do not import the same run

    def create(self, owner: str, request: NewExperiment) -> tuple[Experiment, Notices]:
        """The experiment, and what its owner should know of it. Raises ConfigError with every mistake, ContextError, Refused."""
        sent = environments.sent(request.environment)
        parent_id = request.parent_id
        config_yaml = _revealed_text(request.config_yaml, self._store, self.defaults(), owner, parent_id)
        with (
            laid_over(config_yaml, request.template) as users_yaml,
            config_policies.imposed(users_yaml, request.policies) as whole_yaml,
        ):
            config, notices = self._load(
                whole_yaml,
                request.context_targz,
                complete=not request.validate_only,
                sent=sent,
                defaults=self._defaults_in(request.workspace, whole_yaml),
                bound=config_policies.usual_slots(request.policies),
            )
        config = config_policies.bounded(config, request.policies)
        notices.notes[:0] = config_policies.overridden(users_yaml, whole_yaml, request.policies)
        if request.validate_only:
            return Experiment(
                0, owner, config.to_json(), config_yaml, State.PAUSED, time.time(), seed=0, queue_id=""
            ), notices
        seed = config.reproducibility.experiment_seed
        if seed is None:
            seed = secrets.randbelow(2**31)
            config = config.with_seed(seed)
        config = self._with_source(config, request.visible or RecordReader(self._store))
        sha256 = contexts.keep(self._home, request.context_targz)
        queue_id = str(uuid.uuid4())
        environments.keep(self._home, queue_id, sent or self._of_parent(parent_id) or environments.own())
        event = events.CreateExperiment(
            owner=owner,
            config=config.with_environment(),
            original_config=config_yaml,
            context_sha256=sha256,
            seed=seed,
            queue_id=queue_id,
            activate=request.activate,
            at=time.time(),
            parent_id=parent_id,
            project_id=request.project_id,
            user_id=request.user_id,
        )

        def checked() -> events.Event:
            filing.open_project(RecordReader(self._store), request.project_id)  # nor the project
            with contextlib.suppress(NotFound):  # another installation's
                self._check_source(config)  # again, when nobody can begin to delete it in between
            return event

        try:
            experiment = self._ledger.do_after(checked)[0]
        except (NotFound, Refused, ConfigError):
            environments.drop(self._home, queue_id)
            raise
        assert isinstance(experiment, Experiment)
        contexts.keep(self._home, request.context_targz)
        return experiment, notices

    def go_on(
        self, owner: str, experiment_id: int, changes: str, policies: Sequence[ConfigPolicy] = ()
    ) -> tuple[Experiment, list[str]]:
        """The experiment, which had ended, at work again, with ``changes`` to its configuration; and what its owner should know
        of it. Raises ConfigError with every mistake, NotFound, Refused."""
        with self._store.read() as connection:
            row = queries.experiment(connection, experiment_id)
        changes = _revealed_text(changes, self._store, self.defaults(), owner, experiment_id)
        before = ExperimentConfig.from_json(row.config)
        if before.searcher.name == "single":  # trials of a search go on unchanged, or not at all
            before = ExperimentConfig.from_json(config_policies.without_imposed(row.config, policies))
            with config_policies.imposed(changes, policies) as whole_changes:
                changed = continued(experiment_id, before, whole_changes)
            more = config_policies.overridden(changes, whole_changes, policies)
        else:
            changed, more = continued(experiment_id, before, changes), []
        config, limits = self._admission.limited(changed, config_policies.usual_slots(policies))
        config = config_policies.bounded(config, policies)
        self._admission.check(config)
        environments.keep_for_copy(self._home, row)

        def read() -> events.Event:
            with self._store.read() as connection:
                past = queries.past(connection, experiment_id)
                sources = {trial.source_checkpoint for trial in past.of(Trial) if trial.source_checkpoint}
                origins = queries.with_origins(connection, sorted(sources))
            if past.of(Experiment)[0].config != row.config:
                raise Refused(f"experiment {experiment_id} was changed meanwhile, try again")
            gone = {checkpoint.uuid: why for checkpoint, origin in origins if (why := _gone(checkpoint, origin))}
            return events.ContinueExperiment(experiment_id, config, past, time.time(), gone)

        rows = self._ledger.do_after(read)
        trials = {trial.id: trial for trial in rows if isinstance(trial, Trial)}  # as they are at last
        notes = [*more, *limits, *setting_warnings.of_continued(config, trials.values())]
        return next(experiment for experiment in rows if isinstance(experiment, Experiment)), notes

    def _of_parent(self, parent_id: int | None) -> Environment | None:
        """A fork from a client that sends no environment keeps the one it had."""
        if parent_id is None:
            return None
        with contextlib.suppress(NotFound), self._store.read() as connection:
            return environments.of_parent(self._home, queries.experiment(connection, parent_id))
        return None

    def create_unmanaged(self, owner: str, request: NewExperiment, external_id: str = "") -> Experiment:
        """An experiment whose trials run elsewhere; the same ``external_id`` gives the same one. Raises ConfigError, NotFound,
        Refused."""
        config_yaml = _revealed_text(request.config_yaml, self._store, self.defaults(), owner, None)
        with laid_over(config_yaml, request.template) as whole_yaml:
            config = load_config(config_of(whole_yaml), file="config", defaults=self.defaults()).config
        return self._unmanaged.experiment(
            events.CreateExperiment(
                owner=owner,
                config=config,
                original_config=config_yaml,
                context_sha256=contexts.keep(self._home, contexts.pack([])),
                seed=secrets.randbelow(2**31),
                queue_id=str(uuid.uuid4()),
                activate=True,
                at=time.time(),
                kind=TaskKind.UNMANAGED_TRIAL,
                external_id=external_id,
                project_id=request.project_id,
                user_id=request.user_id,
            )
        )

    def render(self, owner: str, config_yaml: str, context_targz: bytes) -> tuple[str, Path, list[str]]:
        """A run that needs no master: its script, its directory, notes. Raises ConfigError, ContextError."""
        config_yaml = _revealed_text(config_yaml, self._store, self.defaults(), owner, None)
        config, notices = self._load(config_yaml, context_targz)
        config = self._with_source(config, RecordReader(self._store))
        run, trial, experiment = standalone.new_run(config, owner, time.time())
        experiment.context_sha256 = contexts.keep(self._home, context_targz)
        job = self._builder.write(
            Submission(run, trial, experiment, config, secrets.token_urlsafe(32), self_requeue=True)
        )
        return job.script.read_text(), job.run_dir, notices.notes

    def import_run(self, run_dir: Path) -> Experiment:
        """An experiment from a run that ``render`` made. Raises Refused, RunDirError."""
        live = {job_id for job_id, record in self._scheduler.jobs().items() if record.state.live}
        try:
            entry, happened = standalone.history(run_dir, live)
        except (OSError, ValueError) as error:
            raise Refused(f"the run directory cannot be read: {error}") from error
        expected = self._home.run(entry.run_id).path
        if run_dir.resolve() != expected.resolve():
            raise Refused(f"{run_dir} is not where this master keeps runs; expected {expected}")
        with self._importing:
            self._refuse_second_import(entry.run_id)
            for event in happened:
                if isinstance(event, events.Reported):
                    event.others = of_others(self._store, None, event.reports)
            row = self._ledger.do_all([entry, *happened])[0]
            assert isinstance(row, Experiment)
        with self._store.read() as connection:
            return queries.experiment(connection, row.id)

    def _refuse_second_import(self, run_id: str) -> None:
        """Asks the database: the experiment may have ended long ago."""
        with self._store.read() as connection, contextlib.suppress(NotFound):
            run = queries.run(connection, run_id)
            raise Refused(f"run {run_id} is experiment {run.experiment_id} already")

    def context(self, experiment_id: int) -> bytes:
        """The context directory as tar.gz. Raises NotFound, also where there is none: the experiment trains elsewhere; ContextError
        where somebody has removed it."""
        with self._store.read() as connection:
            experiment = queries.experiment(connection, experiment_id)
        if not experiment.context_sha256:
            raise NotFound(f"experiment {experiment_id} has no context directory: it trains outside dethpc")
        return contexts.stored(self._home, experiment.context_sha256, f"experiment {experiment_id}")

    # --- the configuration

    def defaults(self) -> dict[str, Any]:
        """What the site gives to every experiment that does not say otherwise."""
        storage, layer = self._installation.checkpoint_storage, self._installation.site.data_layer
        resources = {"resource_pool": self._admission.default_pool()}
        return {
            "checkpoint_storage": storage,
            "resources": resources,
            **({} if layer is None else {"data_layer": layer}),
        }

    def _defaults_in(self, workspace: Workspace | None, config_yaml: str) -> dict[str, Any]:
        """Those of the site, with those of the workspace over them. Raises ConfigError."""
        site = self.defaults()
        if workspace is None or not (workspace.pool or workspace.aux_pool or workspace.checkpoint_storage):
            return site
        slots = load_config(config_yaml, file="config", defaults=site).config.resources.slots_per_trial
        return {**site, **filing.defaults(workspace, slots)}

    def _load(
        self,
        config_yaml: str,
        context_targz: bytes,
        *,
        complete: bool = True,
        sent: Environment | None = None,
        defaults: dict[str, Any] | None = None,
        bound: int | None = None,
    ) -> tuple[ExperimentConfig, Notices]:
        """The configuration, and what is to be told about it. Not ``complete``: the context may be missing. ``defaults``: in the
        place of those of the site. ``bound``: see ``Admission.limited``."""
        notes: list[str] = []
        defaults = self.defaults() if defaults is None else defaults
        loaded = load_config(config_yaml, file="config", defaults=defaults)
        config = loaded.config
        if config.entrypoint == NO_ENTRYPOINT:  # a fork of it
            raise ConfigError(
                [Problem("entrypoint", "the unmanaged experiment has none to fork; write the command that trains")]
            )
        shell, more = requested_resources.of_shell(sent.sbatch if sent else {})
        notes += more
        whole = complete or bool(contexts.members(context_targz))
        config, more = batch_scripts.submitted(config, context_targz) if whole and context_targz else (config, [])
        notes += more
        script = batch_scripts.read_script(config, context_targz) if whole else None
        if script is not None or shell or config.slurm.sbatch_args:
            entrypoint = config.entrypoint
            config, more = requested_resources.fold(config_yaml, script, shell, self._cluster(defaults))
            config = config.model_copy(update={"entrypoint": entrypoint})
            notes += more
        config, more = self._admission.limited(config, bound)
        notes += more
        notes += self._of_no_effect(config)
        draws.try_out(getattr(config.searcher, "sampler", None), config.space)
        text = self._admission.check(config)
        notes += prospects.notes(prospects.ask(self._scheduler, text, self._home.root), config)
        inside = self._admission.container(config)
        notes += loaded.without_container if inside is None else inside.notes(config)
        python = sent.python if sent else None
        notes += setting_warnings.notes(config.environment)
        notes += setting_warnings.storage_space(config.storage_section)
        if inside is None and context_targz:  # what the hook installs in a container touches no Python of the node
            notes += installs.notes(config, context_targz, python)
        if context_targz:
            notes += code_notes.notes(config, context_targz, inside=inside is not None)
            notes += batch_scripts.notes(config, context_targz)
        return config, Notices(notes, [*loaded.translated, *loaded.warnings])

    def _of_no_effect(self, config: ExperimentConfig) -> Iterator[str]:
        """What the queue of the experiment's pool does not go by."""
        resources = config.resources
        kind = self._ledger.state.rules_of(resources.resource_pool).kind
        reason = f"no effect: pool {resources.resource_pool} has the {kind} scheduler"
        if resources.weight != 1 and kind != "fair_share":
            yield f"resources.weight has {reason}"
        if resources.priority is not None and kind != "priority":
            yield f"resources.priority has {reason}"

    def _cluster(self, defaults: dict[str, Any]) -> requested_resources.Cluster:
        pools = self._installation.site.pools
        return requested_resources.Cluster(
            defaults=defaults,
            pools=self._admission.pools(),
            cpus_per_slot={name: pool.cpus_per_slot for name, pool in pools.items() if pool.cpus_per_slot},
            unknown_gpus=frozenset(name for name, pool in pools.items() if pool.whole_nodes),
            local=self._scheduler.kind == "local",
        )

    def _with_source(self, config: ExperimentConfig, visible: RecordReader) -> ExperimentConfig:
        """``source_trial_id`` means that trial's latest checkpoint at this moment; it is one of those that are ``visible``.

        Raises NotFound, Refused when there is nothing to start from. A checkpoint that is unknown may be another installation's,
        where the storage has it.
        """
        if not isinstance(config.searcher, WarmStart):
            return config
        source, uuid = config.searcher.source_trial_id, config.searcher.source_checkpoint_uuid
        if source is not None:
            try:
                with visible.reading() as connection:
                    uuid = queries.trial(connection, source).latest_checkpoint
            except NotFound:
                raise NotFound(f"searcher.source_trial_id: no trial {source}") from None
            if uuid is None:
                raise Refused(f"searcher.source_trial_id: trial {source} has no checkpoint to start from")
            config = config.with_source_checkpoint(uuid)
        if uuid is not None:
            try:
                with visible.reading() as connection:
                    queries.checkpoint(connection, uuid)
                self._check_source(config)
            except NotFound as error:
                with visible.reading() as connection:
                    like = queries.checkpoints_like(connection, uuid)
                _look_for(uuid, config, like, str(error), hidden=self._is_here(uuid))
        return config

    def _is_here(self, uuid: str) -> bool:
        """Whether an experiment here has made the checkpoint."""
        with self._store.read() as connection, contextlib.suppress(NotFound):
            return bool(queries.checkpoint(connection, uuid))
        return False

    def _check_source(self, config: ExperimentConfig) -> None:
        """Raises Refused where the checkpoint that its trials begin at is gone, or goes; NotFound where none here has made it."""
        searcher = config.searcher
        if not isinstance(searcher, WarmStart) or (uuid := searcher.source_checkpoint_uuid) is None:
            return
        with self._store.read() as connection:
            checkpoint = queries.checkpoint(connection, uuid)
            origin = queries.experiment(connection, checkpoint.experiment_id).state
        field = "source_checkpoint_uuid" if searcher.source_trial_id is None else "source_trial_id"
        _check(f"searcher.{field}", checkpoint, origin)


def _look_for(uuid: str, config: ExperimentConfig, like: list[str], unknown: str, *, hidden: bool) -> None:
    """Refuses a checkpoint that no experiment here has and that is not in the storage either, as far as that can be told, and one
    that is ``hidden`` from its writer.

    ``unknown``: why no experiment here has it; ``like``: others that its writer may have meant."""
    section = config.storage_section
    missing, place = hidden, ""
    if section.get("type") == "shared_fs":
        with contextlib.suppress(DethpcError, OSError):
            store = storage.build(section)
            place = f"; it is not in {store} either"
            # What is on nodes alone cannot be looked into from here; a folder that is not made yet has nothing in it.
            missing = hidden or (Path(str(store)).parent.is_dir() and not store.exists(uuid))
    if missing:
        hint = did_you_mean(uuid, like) or "det checkpoint list EXPERIMENT shows which there are"
        raise NotFound(f"searcher.source_checkpoint_uuid: {unknown}{place}; {hint}")


def _check(field: str, checkpoint: Checkpoint, origin: State) -> None:
    """``origin``: the state of the experiment that made it. Raises Refused."""
    if why := _gone(checkpoint, origin):
        shows = (
            "" if not origin.keeps_files else f"; det checkpoint list {checkpoint.experiment_id} shows which there are"
        )
        raise Refused(f"{field}: checkpoint {checkpoint.uuid} {why}{shows}")


def _gone(checkpoint: Checkpoint, origin: State) -> str:
    """Why nothing can begin there, in words; "": it can."""
    if origin in (State.DELETING, State.DELETE_FAILED):
        return f"goes with experiment {checkpoint.experiment_id}, which is being deleted"
    if checkpoint.decided is CheckpointState.DELETED or origin is State.DELETED:
        return "was deleted"
    return f"is damaged ({checkpoint.reason})" if checkpoint.state is CheckpointState.ERROR else ""


def _revealed_text(
    config_yaml: str, store: SqlStore, defaults: Mapping[str, Any], owner: str, parent_id: int | None
) -> str:
    """The configuration with each ``MASK`` replaced by the secret: the parent's, if it has the same owner, else the site's. Such a
    one was shown with its secrets masked and is submitted again.

    One without any stays as it was written. Raises ConfigError for each that nobody knows.
    """
    if MASK not in config_yaml:
        return config_yaml
    source, problems = read(config_yaml, "config")
    if problems:
        return config_yaml  # what loads it says what is wrong
    configs: list[Any] = [defaults]
    if parent_id is not None:
        with store.read() as connection:
            parent = queries.experiment(connection, parent_id)
        if parent.owner == owner:
            configs = [parent.config, read(parent.original_config, "config")[0].data, defaults]
    config, wrong = revealed(source.data, configs)
    if wrong:
        raise ConfigError([source.placed(problem) for problem in wrong])
    return config_yaml if config == source.data else dump(config)
