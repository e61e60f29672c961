"""Experiments over the REST API. Answers are the wire's JSON objects (camelCase, as Determined's REST API v1 names them).

Every function raises MasterError when talking to the master fails, NotFound when there is no such experiment, Refused when its
present state does not allow the request, and ConfigError from ``create``.
"""

from __future__ import annotations

import contextlib
from binascii import a2b_base64
from typing import TYPE_CHECKING, Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple, TypedDict

from dethpc.client.nouns import users
from dethpc.client.session import Json, Session
from dethpc.client.transport import OnSent
from dethpc.domain.text.measures import plural
from dethpc.errors import NotFound

if TYPE_CHECKING:
    from typing_extensions import Unpack


ACTIONS = ("pause", "activate", "cancel", "kill", "archive", "unarchive")
_THERE = ("STATE_ACTIVE", "STATE_COMPLETED", "STATE_PARTIALLY_DELETED")  # of checkpoints that have files yet
_PAGE = 500
_UPLOAD = 600.0  # seconds; the context may be tens of megabytes


class CreateOptions(TypedDict, total=False):
    """``activate``: True, unless given. ``template``: the name of the one that the configuration is laid over."""

    activate: bool
    project: Optional[int]
    parent: Optional[int]
    template: Optional[str]
    validate_only: bool


def create(
    session: Session,
    config: str,
    files: Sequence[Json],
    *,
    with_environment: bool = True,
    on_sent: Optional[OnSent] = None,
    **options: Unpack[CreateOptions],
) -> Json:
    """Create an experiment; returns {"experiment", "config", "warnings", "notes", "configWarnings", "environment"}.

    ``config`` is YAML; ``files`` is the context directory as ``v1File`` objects (path, type, content in base64, mtime, mode);
    without any, that of the ``parent``, where there is one. The experiment's jobs run in the environment of this process, which
    goes along; not ``with_environment``: in that of the ``parent``. The master keeps contexts: files that it has already are
    not sent again. ``on_sent``: hears how many bytes of how many were sent.
    """
    from dethpc.client import environment  # here: few commands create anything

    body: Json = {
        "config": config,
        "activate": options.get("activate", True),
        "validateOnly": options.get("validate_only", False),
        "projectId": options.get("project"),
        "parentId": options.get("parent"),
        "template": options.get("template"),
    }
    body = {name: value for name, value in body.items() if value is not None}
    if with_environment:
        body["environment"] = environment.encoded()
    answer: Json
    if uploaded := _stored_digest(session, files):
        with contextlib.suppress(NotFound):  # it is gone meanwhile
            answer = session.post("/api/v1/experiments", json={**body, "contextDigest": uploaded}, timeout=_UPLOAD)
            return answer
    answer = session.post(
        "/api/v1/experiments", json={**body, "modelDefinition": list(files)}, timeout=_UPLOAD, on_sent=on_sent
    )
    return answer


def _stored_digest(session: Session, files: Sequence[Json]) -> Optional[str]:
    """The digest of files that the master has; None: it has them not, or sending them takes no longer than asking."""
    from dethpc.domain.context_files import WORTH_ASKING, digest  # here: it loads OpenSSL

    if sum(len(file.get("content") or "") for file in files) < WORTH_ASKING:
        return None
    context_digest = digest(
        (file["path"], file["type"], file.get("content") or "", file.get("mtime") or 0, file.get("mode", 0o644))
        for file in files
    )
    try:
        session.get(f"/api/v1/contexts/{context_digest}")
    except NotFound:
        return None
    return context_digest


def preview(session: Session, config: Json) -> Json:
    """What the search of ``config`` would train; returns {"summary": {"config", "trials": [{"count", "unit"}]}}."""
    answer: Json = session.post("/api/v1/preview-hp-search", json={"config": config})
    return answer


def get(session: Session, experiment: int) -> Json:
    """Returns {"experiment", "config", "jobSummary"}."""
    answer: Json = session.get(f"/api/v1/experiments/{experiment}")
    return answer


def retain_logs(session: Session, noun: str, number: int, days: int) -> None:
    """For how many days the logs of an experiment, or of a trial (``noun`` experiments or trials), are kept after its end; -1: for
    ever."""
    session.put(f"/api/v1/{noun}/{number}/retain_logs", {"numDays": days})


def cleanup_logs(session: Session) -> int:
    """Delete the logs that are due; of how many trials those were."""
    return int(session.post("/api/v1/cleanup_logs")["removedCount"])


def waiting(session: Session, experiment: int) -> Json:
    """What its trials wait for: {"text", "count", "groups"}, a group {"cause", "why", "sooner", "text", "startTime", "count",
    "trialIds"}."""
    answer: Json = session.get(f"/api/v1/experiments/{experiment}/waiting")
    return answer


def goodput(session: Session, experiment: int, *, trials: bool = True) -> Json:
    """Where its slots went: {"total": {"useful", "lost", "overhead", "allocated", "waiting", "goodput"}, "trials": [the same with
    "trialId"]}, in slot-seconds. ``trials`` False: without them, which takes no longer for many."""
    path, params = f"/api/v1/experiments/{experiment}/goodput", {"trials": trials, "offset": 0}
    answer: Json = session.get(path, params=params)
    pages = answer.pop("pagination")
    while trials and pages["endIndex"] < pages["total"]:
        more = session.get(path, params={**params, "offset": pages["endIndex"]})
        answer["trials"] += more["trials"]
        pages = more["pagination"]
    return answer


class Filter(NamedTuple):
    """Which experiments a list has. ``archived`` None: both; ``mine``: only those that the user of the session created; ``name``:
    a part of the name, in any case; ``labels``: experiments with all of them; ``ids``: only these, all if empty; ``project``: by
    id, 0 for all.
    """

    archived: Optional[bool] = None
    mine: bool = False
    states: Sequence[str] = ()
    name: Optional[str] = None
    labels: Sequence[str] = ()
    ids: Sequence[int] = ()
    project: int = 0


_ALL = Filter()


def listing(
    session: Session,
    which: Filter = _ALL,
    *,
    sort_by: str = "SORT_BY_ID",
    newest_first: bool = False,
    offset: int = 0,
    limit: int = 0,
) -> Json:
    """One page: {"experiments": [...], "pagination": {...}}. ``limit`` 0: all."""
    params: Json = {"offset": offset, "limit": limit or -1, "sortBy": sort_by}  # on the wire 0 means 100
    params["orderBy"] = "ORDER_BY_DESC" if newest_first else "ORDER_BY_ASC"
    chosen: Json = {"states": list(which.states), "name": which.name, "labels": list(which.labels)}
    chosen |= {"experimentIdFilter.incl": list(which.ids), "projectId": which.project}
    if which.mine:
        chosen["userIds"] = [users.own_id(session)]
    params.update({name: value for name, value in chosen.items() if value})
    if which.archived is not None:
        params["archived"] = which.archived
    answer: Json = session.get("/api/v1/experiments", params=params)
    return answer


def search(session: Session, experiment: int, *, offset: int = 0, limit: int = 0) -> Json:
    """How the search stands: {"progress", "estimatedEndTime", "brackets", "trials", ...}. ``limit``: at most that many trials in
    each rung, the best, and of all, by their creation, ``offset`` of which are skipped; 0: every one."""
    params = {"limit": limit, "offset": offset}
    answer: Json = session.get(f"/api/v1/experiments/{experiment}/search", params=params)
    return answer


class TrialOptions(TypedDict, total=False):
    """``sort_by``: SORT_BY_ID, unless given; SORT_BY_BEST_VALIDATION_METRIC sorts by the searcher's metric: ascending is the best
    first, whatever is better for it. ``states``: only trials in one of them."""

    sort_by: str
    descending: bool
    states: Sequence[str]


def trials(
    session: Session,
    experiment: int,
    *,
    offset: int = 0,
    limit: int = 0,
    **options: Unpack[TrialOptions],
) -> Iterator[Json]:
    """The trials in order, page by page. ``limit`` 0: all."""
    got = 0
    while True:
        want = min(_PAGE, limit - got) if limit else _PAGE
        answer = trial_page(session, experiment, offset=offset + got, limit=want, **options)
        page: List[Json] = answer["trials"]
        yield from page
        got += len(page)
        if len(page) < want or got == limit:
            return


def trial_page(
    session: Session,
    experiment: int,
    *,
    offset: int,
    limit: int,
    **options: Unpack[TrialOptions],
) -> Json:
    """One page of ``trials``, and how many there are in all: {"trials": [...], "pagination": {"total", ...}}."""
    params: Json = {
        "sortBy": options.get("sort_by", "SORT_BY_ID"),
        "orderBy": "ORDER_BY_DESC" if options.get("descending") else "ORDER_BY_ASC",
        "offset": offset,
        "limit": limit,
    }
    if states := options.get("states"):
        params["states"] = list(states)
    answer: Json = session.get(f"/api/v1/experiments/{experiment}/trials", params=params)
    return {**answer, "trials": answer.get("trials") or []}


def metric_names(session: Session, experiment: int) -> List[Tuple[str, str]]:
    """(group, name) of every metric that its trials reported, sorted."""
    lines = session.stream("/api/v1/experiments/metrics-stream/metric-names", params={"ids": experiment})
    return [(metric["group"], metric["name"]) for line in lines for metric in line["metricNames"]]


MOST_POINTS = 10_000
"""Trials of a search that the master gives as points at a time."""


def points(session: Session, experiment: int, limit: int = MOST_POINTS) -> Json:
    """Of the trials that have a value of the searcher's metric, the best first and ``limit`` at most: {"metric", "trials",
    "hparams", "values"}, the last three in columns."""
    answer: Json = session.get(_points(experiment), params={"limit": limit})
    return answer


def points_as_json(session: Session, experiment: int) -> bytes:
    """The same of ``MOST_POINTS`` trials at most, as text: to read it and to write it again takes longer than to make it."""
    return session.raw(_points(experiment), params={"limit": MOST_POINTS})


def _points(experiment: int) -> str:
    return f"/api/v1/experiments/{experiment}/search/points"


def checkpoints(
    session: Session, experiment: int, *, best: Optional[int] = None, newest: Optional[int] = None
) -> List[Json]:
    """The experiment's checkpoints, oldest first; with ``best`` the N best by the searcher's metric of those that have files yet,
    best first; with ``newest`` the N last ones, the last first."""
    params: Json = {"sortByAttr": "SORT_BY_SEARCHER_METRIC" if best else "SORT_BY_END_TIME"}
    if best:
        params.update(limit=best, states=_THERE)
    elif newest:
        params.update(limit=newest, orderBy="ORDER_BY_DESC")
    answer: List[Json] = (
        session.get(f"/api/v1/experiments/{experiment}/checkpoints", params=params).get("checkpoints") or []
    )
    return answer


def act(session: Session, experiment: int, action: str) -> Json:
    """``action`` is one of ``ACTIONS``. The answer to kill has "changed": whether there was anything to end."""
    answer: Json = session.post(f"/api/v1/experiments/{experiment}/{action}")
    return answer


def go_on(session: Session, experiment: int, config: str = "") -> Json:
    """Continue an experiment that has ended, with the YAML of ``config`` laid over its configuration. Returns {"experiment",
    "warnings"}. Raises ConfigError too."""
    body = {"id": experiment, "overrideConfig": config}
    answer: Json = session.post("/api/v1/experiments/continue", json=body)
    return answer


def delete(session: Session, experiment: int) -> None:
    session.delete(f"/api/v1/experiments/{experiment}")


def patch(session: Session, experiment: int, **fields: Any) -> Json:
    """Change ``name``, ``description``, ``notes``, ``labels``, ``resources`` ({"maxSlots", "weight", "priority"}) or
    ``checkpointStorage`` ({"saveExperimentBest", "saveTrialBest", "saveTrialLatest"})."""
    answer: Json = session.patch(f"/api/v1/experiments/{experiment}", json={"id": experiment, **fields})
    return answer


def relabel(session: Session, experiment: int, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> bool:
    """Give it labels, and take some away, but for those that it has or has not already. False: nothing was to be done."""
    before = list(get(session, experiment)["experiment"].get("labels") or [])
    after = [label for label in dict.fromkeys([*before, *add]) if label not in remove]
    if after != before:
        patch(session, experiment, labels=after)
    return after != before


def model_definition(session: Session, experiment: int) -> bytes:
    """The context directory as a gzipped tar archive."""
    return a2b_base64(session.get(f"/api/v1/experiments/{experiment}/model_def")["b64Tgz"])


def file_tree(session: Session, experiment: int) -> List[Json]:
    """Its context directory: {"name", "path", "isDir", "contentLength", "modifiedTime", "files"}: ``files`` of a folder."""
    files: List[Json] = session.get(f"/api/v1/experiments/{experiment}/file_tree").get("files") or []
    return files


def file(session: Session, experiment: int, path: str, most: Optional[int] = None) -> bytes:
    """One file of its context directory, its first ``most`` bytes (None: all of it)."""
    body = {"experimentId": experiment, "path": path, **({} if most is None else {"length": most})}
    return a2b_base64(session.post(f"/api/v1/experiments/{experiment}/file", body, idempotent=True)["file"])


def code_changes(session: Session, experiment: int, against: int) -> Json:
    """How its files differ from those of another: {"against", "changes", "more"}, a change {"path", "kind", "diff", "why"}, where
    "kind" is added, removed or changed, "diff" a unified one, and "why" says why there is none; "more": how many are not told."""
    answer: Json = session.get(f"/api/v1/experiments/{experiment}/code_changes", params={"against": against})
    return answer


def hyperparameters(
    session: Session, experiment: int, x: str = "", y: str = "", log: Sequence[str] = (), linear: Sequence[str] = ()
) -> Json:
    """What its hyperparameters have to do with the searcher's metric: {"trials", "of", "scales": {name: logarithmic?},
    "importance": [{"name", "share", "direction", "trials"}], "map": {"x", "y", "logarithmic", "columns", "rows", "cells"} or None}.
    ``x`` and ``y`` are those of the map; without them it is that of the two most important. Those in ``log`` and ``linear`` are
    scaled so, others as the configuration draws them."""
    params = {"x": x or None, "y": y or None, "log": list(log), "linear": list(linear)}
    answer: Json = session.get(f"/api/v1/experiments/{experiment}/hyperparameters", params=params)
    return answer


def render(session: Session, config: str, files: Sequence[Json]) -> Json:
    """Mint a run that no master will start; returns {"script", "run", "runDirectory"}.

    ``script`` is the text of its batch script: ``sbatch`` runs it, and its journal can be taken in by ``import_run``.
    """
    body = {"config": config, "modelDefinition": list(files)}
    answer: Json = session.post("/api/v1/experiments/render", json=body, timeout=_UPLOAD)
    return answer


def import_run(session: Session, run_directory: str) -> Json:
    """Take in the journal of a run that was submitted by hand; returns {"experiment"}."""
    answer: Json = session.post("/api/v1/experiments/import", json={"runDirectory": run_directory}, timeout=_UPLOAD)
    return answer


class SearchCost(NamedTuple):
    """The cost of a search. ``total`` and ``longest``: of all trials, and of the longest, in ``unit``; None where trials train to
    their own end."""

    trials: int
    total: Optional[int]
    longest: Optional[int]
    unit: str

    @classmethod
    def of(cls, preview: Json) -> SearchCost:
        """Computed from its preview (``preview``)."""
        trials = preview["summary"]["trials"]
        count = sum(trial["count"] for trial in trials)
        if not trials or any(trial["unit"]["maxLength"] for trial in trials):
            return cls(count, None, None, "")
        total = sum(trial["count"] * trial["unit"]["value"] for trial in trials)
        return cls(count, total, max(trial["unit"]["value"] for trial in trials), trials[0]["unit"]["name"] or "")

    @property
    def summary(self) -> str:
        line = plural(self.trials, "trial")
        if self.total is not None and self.longest:
            line += f", {self.total} {self.unit} in total"
            if (alone := self.total / self.longest) != self.trials:  # some end early
                line += f", as much as {alone:.4g} trials of {self.longest} {self.unit}"
        return line

    def slot_seconds(self, other: SearchCost, spent: float) -> Optional[float]:
        """What this one costs at the pace of another, which took ``spent`` slot-seconds; None where they cannot be compared."""
        if self.total is not None and other.total and self.unit == other.unit:
            return spent * self.total / other.total
        if self.total is None and other.total is None and other.trials:
            return spent * self.trials / other.trials
        return None
