"""Experiments over the REST API. Answers are the wire's JSON objects (camelCase, as Determined's REST API v1 names them).

Every function raises MasterError when talking to the master fails, NotFound when there is no such experiment, Refused when its
present state does not allow the request, and ConfigError from ``create``.
"""

from __future__ import annotations

import base64
import contextlib
from typing import Any, Dict, Iterator, List, Optional, Sequence

from dethpc.client import environment
from dethpc.client.session import Session
from dethpc.client.transport import OnSent
from dethpc.domain.context_files import WORTH_ASKING, digest
from dethpc.errors import ContextError, NotFound

Json = Dict[str, Any]

ACTIONS = ("pause", "activate", "cancel", "kill", "archive", "unarchive")
_PAGE = 500
_UPLOAD = 600.0  # seconds; the context may be tens of megabytes


def create(
    session: Session,
    config: str,
    files: Sequence[Json],
    *,
    activate: bool = True,
    project: Optional[int] = None,
    parent: Optional[int] = None,
    validate_only: bool = False,
    on_sent: Optional[OnSent] = None,
) -> Json:
    """Create an experiment; returns {"experiment", "config", "warnings", "notes", "environment"}.

    ``config`` is YAML; ``files`` is the context directory as ``v1File`` objects (path, type, content in base64, mtime, mode);
    without any, that of the ``parent``, where there is one. The experiment's jobs run in the environment of this process, which
    goes along. The master keeps contexts: files that it has already are not sent again. ``on_sent``: hears how many bytes of how
    many were sent.
    """
    body: Json = {"config": config, "activate": activate, "validateOnly": validate_only}
    try:
        body["environment"] = base64.b64encode(environment.here().to_bytes()).decode()
    except ValueError as error:
        raise ContextError(str(error)) from None
    if project is not None:
        body["projectId"] = project
    if parent is not None:
        body["parentId"] = parent
    answer: Json
    if known := _known(session, files):
        with contextlib.suppress(NotFound):  # it is gone meanwhile
            answer = session.post("/api/v1/experiments", json={**body, "contextDigest": known}, timeout=_UPLOAD)
            return answer
    answer = session.post(
        "/api/v1/experiments", json={**body, "modelDefinition": list(files)}, timeout=_UPLOAD, on_sent=on_sent
    )
    return answer


def _known(session: Session, files: Sequence[Json]) -> Optional[str]:
    """The digest of files that the master has; None: it has them not, or sending them takes no longer than asking."""
    if sum(len(file.get("content") or "") for file in files) < WORTH_ASKING:
        return None
    found = digest(
        (file["path"], file["type"], file.get("content") or "", file.get("mtime") or 0, file.get("mode", 0o644))
        for file in files
    )
    try:
        session.get(f"/api/v1/contexts/{found}")
    except NotFound:
        return None
    return found


def preview(session: Session, config: Json) -> Json:
    """What the search of ``config`` would train; returns {"summary": {"config", "trials": [{"count", "unit"}]}}."""
    answer: Json = session.post("/api/v1/preview-hp-search", json={"config": config})
    return answer


def get(session: Session, experiment: int) -> Json:
    """Returns {"experiment", "config", "jobSummary"}."""
    answer: Json = session.get(f"/api/v1/experiments/{experiment}")
    return answer


def waiting(session: Session, experiment: int) -> Json:
    """What its trials wait for: {"text", "count", "groups"}, a group {"cause", "why", "sooner", "text", "startTime", "count",
    "trialIds"}."""
    answer: Json = session.get(f"/api/v1/experiments/{experiment}/waiting")
    return answer


def goodput(session: Session, experiment: int) -> Json:
    """Where its slots went: {"total": {"useful", "lost", "overhead", "allocated", "waiting", "goodput"}, "trials": [the same with
    "trialId"]}, in slot-seconds."""
    answer: Json = session.get(f"/api/v1/experiments/{experiment}/goodput")
    return answer


def listing(
    session: Session,
    *,
    archived: Optional[bool] = None,
    users: Sequence[str] = (),
    states: Sequence[str] = (),
    name: Optional[str] = None,
    labels: Sequence[str] = (),
    newest_first: bool = False,
    offset: int = 0,
    limit: int = 0,
) -> Json:
    """One page: {"experiments": [...], "pagination": {...}}. ``archived`` None: both; ``limit`` 0: all; ``name``: part of
    the name, in any case; ``labels``: it has all of them."""
    params: Json = {"offset": offset, "limit": limit or -1, "sortBy": "SORT_BY_ID"}  # on the wire 0 means 100
    params["orderBy"] = "ORDER_BY_DESC" if newest_first else "ORDER_BY_ASC"
    if archived is not None:
        params["archived"] = archived
    if users:
        params["users"] = list(users)
    if states:
        params["states"] = list(states)
    if name:
        params["name"] = name
    if labels:
        params["labels"] = list(labels)
    answer: Json = session.get("/api/v1/experiments", params=params)
    return answer


def search(session: Session, experiment: int, *, limit: int = 0) -> Json:
    """How the search stands: {"progress", "estimatedEndTime", "brackets", "trials", ...}. ``limit``: at most that many trials in
    each rung, the best."""
    answer: Json = session.get(f"/api/v1/experiments/{experiment}/search", params={"limit": limit} if limit else None)
    return answer


def trials(
    session: Session,
    experiment: int,
    *,
    sort_by: str = "SORT_BY_ID",
    descending: bool = False,
    offset: int = 0,
    limit: int = 0,
    states: Sequence[str] = (),
) -> Iterator[Json]:
    """The trials in order, page by page. ``limit`` 0: all. ``SORT_BY_BEST_VALIDATION_METRIC`` sorts by the searcher's metric.
    ``states``: only those in one of them."""
    got = 0
    while True:
        want = min(_PAGE, limit - got) if limit else _PAGE
        params = {
            "sortBy": sort_by,
            "orderBy": "ORDER_BY_DESC" if descending else "ORDER_BY_ASC",
            "offset": offset + got,
            "limit": want,
            **({"states": list(states)} if states else {}),
        }
        page: List[Json] = session.get(f"/api/v1/experiments/{experiment}/trials", params=params).get("trials") or []
        yield from page
        got += len(page)
        if len(page) < want or got == limit:
            return


def checkpoints(session: Session, experiment: int, *, best: Optional[int] = None) -> List[Json]:
    """The experiment's checkpoints, oldest first; with ``best`` the N best by the searcher's metric, best first."""
    params: Json = {"sortByAttr": "SORT_BY_SEARCHER_METRIC" if best else "SORT_BY_END_TIME"}
    if best:
        params["limit"] = best
    answer: List[Json] = (
        session.get(f"/api/v1/experiments/{experiment}/checkpoints", params=params).get("checkpoints") or []
    )
    return answer


def act(session: Session, experiment: int, action: str) -> None:
    """``action`` is one of ``ACTIONS``."""
    session.post(f"/api/v1/experiments/{experiment}/{action}")


def go_on(session: Session, experiment: int, config: str = "") -> Json:
    """Continue an experiment that has ended, with the YAML of ``config`` laid over its configuration. Returns {"experiment",
    "warnings"}. Raises ConfigError too."""
    body = {"id": experiment, "overrideConfig": config}
    answer: Json = session.post("/api/v1/experiments/continue", json=body)
    return answer


def delete(session: Session, experiment: int) -> None:
    session.delete(f"/api/v1/experiments/{experiment}")


def patch(session: Session, experiment: int, **fields: Any) -> Json:
    """Change ``name``, ``description``, ``notes``, ``labels`` or ``resources`` ({"maxSlots", "weight", "priority"})."""
    answer: Json = session.patch(f"/api/v1/experiments/{experiment}", json={"id": experiment, **fields})
    return answer


def model_definition(session: Session, experiment: int) -> bytes:
    """The context directory as a gzipped tar archive."""
    return base64.b64decode(session.get(f"/api/v1/experiments/{experiment}/model_def")["b64Tgz"])


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
