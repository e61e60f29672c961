"""Connections that see some workspaces alone: every table is replaced, in each statement, by its rows in these workspaces.

A statement is preceded by common table expressions that have the names of the tables, so whatever a query selects, joins or
counts, it meets no row of another workspace. What a table of a new kind belongs to follows from its columns; without any that say
so, none of its rows is seen.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Engine, event

from dethpc.domain import facts, records
from dethpc.state.tables import TABLES, name_of

_OPTION = "workspaces"

_OF_ALL: frozenset[type] = frozenset(
    {
        facts.PoolState,
        facts.NodeHealth,
        records.User,
        records.Token,
        records.Group,
        records.RoleAssignment,
        records.UserSetting,
        records.ClusterMessage,
    }
)
"""Kinds that belong to no workspace, and that everybody sees whom a route lets in."""

_CONDITIONS: dict[type, str] = {
    records.Workspace: "id IN ({workspaces})",
    facts.Experiment: "project_id IN (SELECT id FROM projects)",
    facts.Task: (
        "experiment_id IN (SELECT id FROM experiments) OR (experiment_id IS NULL AND {workspace_of_config} IN ({workspaces}))"
    ),
    facts.Run: "experiment_id IN (SELECT id FROM experiments) OR task_id IN (SELECT id FROM tasks)",
    facts.Attempt: "experiment_id IN (SELECT id FROM experiments) OR task_id IN (SELECT id FROM tasks)",
    records.ModelVersion: "model IN (SELECT name FROM models)",
    records.ConfigPolicy: "workspace_id IN (0, {workspaces})",
    records.LogDays: (
        "(noun = 'experiment' AND id IN (SELECT id FROM experiments)) OR (noun = 'trial' AND id IN (SELECT id FROM trials))"
    ),
}
_BY_COLUMN = {
    "workspace_id": "workspace_id IN ({workspaces})",
    "project_id": "project_id IN (SELECT id FROM projects)",
    "experiment_id": "experiment_id IN (SELECT id FROM experiments)",
    "trial_id": "trial_id IN (SELECT id FROM trials)",
    "webhook_id": "webhook_id IN (SELECT id FROM webhooks)",
}
"""By the first of these columns that a table has."""

_FIRST = (records.Workspace, records.Project, facts.Experiment, facts.Trial, facts.Task, records.Model, records.Webhook)
"""What others are narrowed by, in this order."""


def narrow(connection: Connection, workspaces: Collection[int]) -> None:
    """From now on it sees these workspaces alone."""
    connection.execution_options(**{_OPTION: tuple(sorted(workspaces))})


def listen(engine: Engine) -> None:
    """Connections of this engine can be narrowed."""
    event.listen(engine, "before_cursor_execute", _narrowed, retval=True)


def _narrowed(
    connection: Connection, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
) -> tuple[str, Any]:
    workspaces = connection.get_execution_options().get(_OPTION)
    if workspaces is None or not statement.lstrip().upper().startswith(("SELECT", "WITH")):
        return statement, parameters
    dialect = connection.dialect
    expressions = _expressions(workspaces, dialect.name == "sqlite", _hint(dialect))
    rest = statement.lstrip()
    return (f"{expressions}, {rest[5:]}" if rest[:5].upper() == "WITH " else f"{expressions} {rest}"), parameters


def _hint(dialect: Any) -> str:
    """What keeps a database from copying a table that a statement names twice; older ones copy none, or know no such word."""
    since = (3, 35) if dialect.name == "sqlite" else (12,)
    return "NOT MATERIALIZED " if tuple(dialect.server_version_info or ()) >= since else ""


@lru_cache(maxsize=256)
def _expressions(workspaces: tuple[int, ...], qualified: bool, hint: str) -> str:
    """``qualified``: inside an expression, its name means itself unless it names the schema."""
    schema, ids = "main." if qualified else "", ", ".join(map(str, map(int, workspaces))) or "NULL"
    of_config = "json_extract(config, '$.workspace_id')" if qualified else "(config::json->>'workspace_id')"
    values = {"workspaces": ids, "workspace_of_config": f"CAST({of_config} AS INTEGER)"}
    kinds = [*_FIRST, *(kind for kind in TABLES if kind not in _FIRST and kind not in _OF_ALL)]
    return "WITH " + ", ".join(
        f"{name} AS {hint}(SELECT * FROM {schema}{name} WHERE {condition(kind).format(**values)})"  # nosec B608  # names of tables, whole numbers
        for kind, name in ((kind, name_of(kind)) for kind in kinds)
    )


def condition(kind: type) -> str:
    """Which rows of the kind are of ``{workspaces}``. A task of its own has that of its configuration."""
    if kind in _CONDITIONS:
        return _CONDITIONS[kind]
    columns = TABLES[kind].c
    return next((text for column, text in _BY_COLUMN.items() if column in columns), "1 = 0")
