"""What routes need of the master. The daemon implements it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from dethpc.config.site import SiteConfig
from dethpc.domain.facts import Experiment, Row
from dethpc.domain.ids import AttemptId
from dethpc.domain.ports import NodeInfo, PoolInfo
from dethpc.engine.events import Event, QueueChange
from dethpc.master.durable.records import Records
from dethpc.master.experiments.checkpoints import Checkpoints
from dethpc.master.experiments.unmanaged import Unmanaged
from dethpc.master.http.auth import Auth
from dethpc.master.runs.cluster_view import ClusterView
from dethpc.master.runs.waiting import WaitExplainer
from dethpc.state.store import SqlStore


class Master(Protocol):
    """Every method may block and may be called from any thread.

    ``do`` and what is built on it raise errors.NotFound, errors.Refused, errors.NotSupportedYet and errors.ConfigError.
    """

    @property
    def store(self) -> SqlStore: ...

    @property
    def records(self) -> Records: ...

    @property
    def home(self) -> Path: ...

    @property
    def auth(self) -> Auth: ...

    @property
    def site(self) -> SiteConfig: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def cluster_name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def started_at(self) -> float: ...

    @property
    def url(self) -> str: ...

    @property
    def log_path(self) -> Path: ...

    @property
    def unmanaged(self) -> Unmanaged: ...

    @property
    def checkpoints(self) -> Checkpoints: ...

    @property
    def waits(self) -> WaitExplainer: ...

    @property
    def cluster_view(self) -> ClusterView: ...

    def do(self, event: Event) -> list[Row]:
        """Decide and commit; the rows that changed."""
        ...

    def queue_order(self, pool: str) -> list[str]:
        """Queue ids of the pool's jobs in the order in which they are served."""
        ...

    def update_queue(self, changes: Sequence[QueueChange]) -> None:
        """Change jobs of the queue, all or none."""
        ...

    def create_experiment(
        self,
        owner: str,
        config_yaml: str,
        context_targz: bytes,
        activate: bool,
        parent_id: int | None = None,
        project_id: int | None = None,
        validate_only: bool = False,
        template: str | None = None,
    ) -> tuple[Experiment, list[str]]:
        """Load the config, store the context, create the experiment. ``validate_only`` goes no further than the config; the
        experiment returned then has id 0 and is stored nowhere."""
        ...

    def create_unmanaged(self, owner: str, config_yaml: str, external_id: str | None = None) -> Experiment:
        """An experiment whose trials run elsewhere; the same ``external_id`` gives the same one."""
        ...

    def render(self, owner: str, config_yaml: str, context_targz: bytes) -> tuple[str, Path, list[str]]:
        """A run to submit by hand: its script and its directory."""
        ...

    def import_run(self, run_dir: Path) -> Experiment:
        """An experiment from such a run, once it has ended."""
        ...

    def ring(self, attempt: AttemptId, lines: list[str]) -> tuple[int, str | None]:
        """Take in journal lines of an attempt; the last sequence number applied, and why the attempt should stop, if it
        should."""
        ...

    def should_stop(self, attempt: AttemptId) -> bool:
        """Whether the attempt should checkpoint and end. Returns at once."""
        ...

    def pools(self) -> list[PoolInfo]:
        """As the scheduler said last."""
        ...

    def nodes(self) -> list[NodeInfo]:
        """As the scheduler said last."""
        ...

    def context(self, experiment_id: int) -> bytes:
        """The context directory as tar.gz."""
        ...

    def config(self) -> dict[str, Any]:
        """The master's configuration, without secrets."""
        ...
