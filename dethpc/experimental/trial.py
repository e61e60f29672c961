"""Trials, as scripts work with them."""

from __future__ import annotations

import datetime
import enum
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Union

from dethpc.client.nouns import logs, trials
from dethpc.client.session import Session
from dethpc.experimental import checkpoint, metrics
from dethpc.experimental._order import OrderBy

if TYPE_CHECKING:
    from dethpc.experimental.experiment import Experiment


class LogLevel(enum.Enum):
    TRACE = "LOG_LEVEL_TRACE"
    DEBUG = "LOG_LEVEL_DEBUG"
    INFO = "LOG_LEVEL_INFO"
    WARNING = "LOG_LEVEL_WARNING"
    ERROR = "LOG_LEVEL_ERROR"
    CRITICAL = "LOG_LEVEL_CRITICAL"


class TrialState(enum.Enum):
    ACTIVE = "STATE_ACTIVE"
    PAUSED = "STATE_PAUSED"
    STOPPING_CANCELED = "STATE_STOPPING_CANCELED"
    STOPPING_KILLED = "STATE_STOPPING_KILLED"
    STOPPING_COMPLETED = "STATE_STOPPING_COMPLETED"
    STOPPING_ERROR = "STATE_STOPPING_ERROR"
    CANCELED = "STATE_CANCELED"
    COMPLETED = "STATE_COMPLETED"
    ERROR = "STATE_ERROR"
    QUEUED = "STATE_QUEUED"
    PULLING = "STATE_PULLING"
    STARTING = "STATE_STARTING"
    RUNNING = "STATE_RUNNING"


class TrialSortBy(enum.Enum):
    """Fields that trials can be sorted by."""

    ID = "SORT_BY_ID"
    START_TIME = "SORT_BY_START_TIME"
    END_TIME = "SORT_BY_END_TIME"
    STATE = "SORT_BY_STATE"
    BEST_VALIDATION_METRIC = "SORT_BY_BEST_VALIDATION_METRIC"
    LATEST_VALIDATION_METRIC = "SORT_BY_LATEST_VALIDATION_METRIC"
    BATCHES_PROCESSED = "SORT_BY_BATCHES_PROCESSED"
    DURATION = "SORT_BY_DURATION"
    RESTARTS = "SORT_BY_RESTARTS"
    CHECKPOINT_SIZE = "SORT_BY_CHECKPOINT_SIZE"
    LOG_RETENTION_DAYS = "SORT_BY_LOG_RETENTION_DAYS"


class TrialOrderBy(enum.Enum):
    """An older name of ``OrderBy``."""

    ASCENDING = "ORDER_BY_ASC"
    ASC = "ORDER_BY_ASC"
    DESCENDING = "ORDER_BY_DESC"
    DESC = "ORDER_BY_DESC"


class Trial:
    """A trial. Its attributes are as of when it was fetched; ``reload`` fetches it again.

    ``summary_metrics`` maps groups to metrics to their count, last, min, max, mean and sum.
    """

    def __init__(self, trial_id: int, session: Session) -> None:
        self.id = trial_id
        self._session = session
        self.experiment_id: Optional[int] = None
        self.hparams: Optional[Dict[str, Any]] = None
        self.summary_metrics: Optional[Dict[str, Any]] = None
        self.state: Optional[TrialState] = None

    @classmethod
    def _from_wire(cls, session: Session, wire: Dict[str, Any]) -> Trial:
        trial = cls(wire["id"], session)
        trial._take(wire)
        return trial

    def _take(self, wire: Dict[str, Any]) -> None:
        self.experiment_id = wire["experimentId"]
        self.hparams = wire.get("hparams") or {}
        self.state = TrialState(wire["state"])
        self.summary_metrics = wire.get("summaryMetrics")

    def reload(self) -> None:
        self._take(trials.get(self._session, self.id))

    def kill(self) -> None:
        """End the trial; the experiment goes on."""
        trials.kill(self._session, self.id)

    def get_experiment(self) -> Experiment:
        from dethpc.experimental.experiment import Experiment

        if self.experiment_id is None:
            self.reload()
        assert self.experiment_id is not None
        experiment = Experiment(self.experiment_id, self._session)
        experiment.reload()
        return experiment

    def iter_logs(
        self,
        follow: bool = False,
        *,
        head: Optional[int] = None,
        tail: Optional[int] = None,
        container_ids: Optional[List[str]] = None,
        rank_ids: Optional[List[int]] = None,
        stdtypes: Optional[List[str]] = None,
        min_level: Optional[LogLevel] = None,
        timestamp_before: Optional[Union[str, int]] = None,
        timestamp_after: Optional[Union[str, int]] = None,
        sources: Optional[List[str]] = None,
        search_text: Optional[str] = None,
    ) -> Iterator[str]:
        """Lines of the log with their newlines: all, the first ``head``, the last ``tail``, or with ``follow`` up to the end.

        ``min_level``: that and above. Times are RFC 3339 or seconds since the epoch. Raises ValueError.
        """
        if any(count is not None and count < 0 for count in (head, tail)):
            raise ValueError("head and tail are numbers of lines")
        if sum((bool(follow), head is not None, tail is not None)) > 1:
            raise ValueError("give one of follow, head and tail")
        which = logs.Filter(
            level=None if min_level is None else LogLevel(min_level).name,
            ranks=tuple(rank_ids or ()),
            nodes=tuple(sources or ()),
            stdtypes=tuple(stdtypes or ()),
            search=search_text,
            after=_rfc3339(timestamp_after),
            before=_rfc3339(timestamp_before),
        )
        if follow:
            lines = logs.follow(lambda: self._session, self.id, which)
        else:
            lines = logs.read(self._session, self.id, which, head=head, tail=tail)
        return (str(line["message"]) for line in lines)

    logs = iter_logs  # an older name

    def iter_metrics(self, group: str) -> Iterator[metrics.TrialMetrics]:
        """Reports of the group ("training", "validation" or any name), in order."""
        return metrics.iter_metrics(self._session, [self.id], group)

    def stream_metrics(self, group: str) -> Iterator[metrics.TrialMetrics]:
        """An older name of ``iter_metrics``."""
        return self.iter_metrics(group)

    def stream_training_metrics(self) -> Iterator[metrics.TrialMetrics]:
        return self.iter_metrics("training")

    def stream_validation_metrics(self) -> Iterator[metrics.TrialMetrics]:
        return self.iter_metrics("validation")

    def list_checkpoints(
        self,
        sort_by: Optional[Union[str, checkpoint.CheckpointSortBy]] = None,
        order_by: Optional[OrderBy] = None,
        max_results: Optional[int] = None,
    ) -> List[checkpoint.Checkpoint]:
        """Completed checkpoints, sorted by a field or a validation metric's name; by default the best come first."""
        path = f"/api/v1/trials/{self.id}/checkpoints"
        return checkpoint.of_page(self._session, path, sort_by, order_by, max_results)

    def get_checkpoints(
        self,
        sort_by: Optional[Union[str, checkpoint.CheckpointSortBy]] = None,
        order_by: Optional[OrderBy] = None,
    ) -> List[checkpoint.Checkpoint]:
        """An older name of ``list_checkpoints``."""
        return self.list_checkpoints(sort_by, order_by)

    def top_checkpoint(
        self, sort_by: Optional[str] = None, smaller_is_better: Optional[bool] = None
    ) -> checkpoint.Checkpoint:
        """The best checkpoint by the searcher's metric, or by another one. Raises ValueError when there is none."""
        return self.select_checkpoint(best=True, sort_by=sort_by, smaller_is_better=smaller_is_better)

    def select_checkpoint(
        self,
        latest: bool = False,
        best: bool = False,
        uuid: Optional[str] = None,
        sort_by: Optional[str] = None,
        smaller_is_better: Optional[bool] = None,
    ) -> checkpoint.Checkpoint:
        """One checkpoint: the latest, the best, or the one of this uuid. Raises ValueError when there is none."""
        if sum((bool(latest), bool(best), uuid is not None)) != 1:
            raise ValueError("give exactly one of latest, best and uuid")
        if uuid is not None:
            selected = checkpoint.Checkpoint(self._session, uuid)
            selected.reload()
            return selected
        if latest:
            some = self.list_checkpoints(checkpoint.CheckpointSortBy.BATCH_NUMBER, OrderBy.DESC, 1)
        else:
            order = None if sort_by is None else OrderBy.ASC if smaller_is_better else OrderBy.DESC
            some = self.list_checkpoints(sort_by, order, 1)
        if not some:
            raise ValueError(f"trial {self.id} has no such checkpoint")
        return some[0]

    def __repr__(self) -> str:
        return f"Trial(id={self.id})"


class TrialReference(Trial):
    """An older name of ``Trial``."""


def _rfc3339(at: Optional[Union[str, int]]) -> Optional[str]:
    if at is None or isinstance(at, str):
        return at
    if isinstance(at, int):
        return datetime.datetime.fromtimestamp(at, datetime.timezone.utc).isoformat().replace("+00:00", "Z")
    raise ValueError(f"a time is RFC 3339 text or seconds since the epoch, not {at!r}")
