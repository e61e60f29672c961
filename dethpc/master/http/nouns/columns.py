"""Routes about the columns of a project's tables: which there are, and what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

from fastapi import Query
from sqlalchemy import Connection

from dethpc.domain.filter_values import at_path, seconds
from dethpc.domain.filters import STATISTICS
from dethpc.domain.nested import leaves
from dethpc.errors import Refused
from dethpc.master.experiments import filing
from dethpc.master.http.access import Reading, TheRecords, ViewerSomewhere
from dethpc.master.http.models import Float, UserText, Wire
from dethpc.master.http.router import new_router
from dethpc.state.queries import listings
from dethpc.state.queries import project_columns as stored
from dethpc.state.queries.filtering import Listing


class ProjectColumn(Wire):
    """``location`` and ``type`` go into a filter's conditions, as they are."""

    column: UserText
    location: str
    type: str
    display_name: str = ""


class ProjectColumns(Wire):
    columns: list[ProjectColumn]


class MetricRange(Wire):
    metrics_name: UserText
    min: Float
    max: Float


class MetricRanges(Wire):
    ranges: list[MetricRange]


class MetadataValues(Wire):
    values: list[UserText]


router = new_router(prefix="/api/v1/projects", tags=["projects"])

_HEADINGS = {
    "EXPERIMENT": {
        "id": "ID",
        "name": "Name",
        "description": "Description",
        "tags": "Tags",
        "forkedFrom": "Forked",
        "startTime": "Start time",
        "duration": "Duration",
        "numTrials": "Trial count",
        "state": "State",
        "searcherType": "Searcher",
        "resourcePool": "Resource pool",
        "progress": "Progress",
        "checkpointSize": "Checkpoint size",
        "checkpointCount": "Checkpoints",
        "user": "User",
        "searcherMetric": "Searcher Metric",
        "searcherMetricsVal": "Searcher Metric Value",
        "externalExperimentId": "External Experiment ID",
        "externalTrialId": "External Trial ID",
        "archived": "Archived",
    },
    "RUN": {
        "id": "Global Run ID",
        "experimentDescription": "Search Description",
        "tags": "Tags",
        "forkedFrom": "Forked",
        "startTime": "Start Time",
        "endTime": "End Time",
        "duration": "Duration",
        "state": "State",
        "searcherType": "Searcher",
        "resourcePool": "Resource Pool",
        "checkpointSize": "Checkpoint Size",
        "checkpointCount": "Checkpoints",
        "user": "User",
        "searcherMetric": "Searcher Metric",
        "searcherMetricsVal": "Searcher Metric Value",
        "externalExperimentId": "External Experiment ID",
        "projectId": "Project ID",
        "externalRunId": "External Run ID",
        "experimentProgress": "Search Progress",
        "experimentId": "Search ID",
        "experimentName": "Search Name",
        "isExpMultitrial": "Part of Search",
        "parentArchived": "Parent Archived",
        "localId": "Run ID",
        "archived": "Archived",
    },
}
"""Columns that every project has, in the order and with the headings of Determined's tables."""

_KINDS = {"number": "NUMBER", "date": "DATE", "flag": "UNSPECIFIED", "multitrial": "UNSPECIFIED"}
_OF_METRICS = {"number": "NUMBER", "string": "TEXT", "boolean": "TEXT", "array": "ARRAY", "date": "DATE"}
_GROUPS = {"training": "TRAINING", "validation": "VALIDATIONS"}
_TABLES = ("TABLE_TYPE_UNSPECIFIED", "TABLE_TYPE_EXPERIMENT", "TABLE_TYPE_RUN")


@router.get("/{project_id}/columns")
def columns(
    project_id: int,
    connection: Reading,
    records: TheRecords,
    who: ViewerSomewhere,
    table_type: Annotated[str, Query(alias="tableType")] = "",
) -> ProjectColumns:
    """Of the table of experiments, or with TABLE_TYPE_RUN of that of runs."""
    if table_type and table_type not in _TABLES:
        raise Refused(f"tableType is one of {', '.join(_TABLES)}, not {table_type[:60]!r}")
    filing.project(records, project_id)
    runs = table_type == "TABLE_TYPE_RUN"
    named = list(_plain(listings.RUNS if runs else listings.EXPERIMENTS))
    named += _metrics(connection, project_id)
    if runs:
        named += _typed("hp.", "RUN_HYPERPARAMETERS", stored.hyperparameters(connection, project_id))
        named += _typed("metadata.", "RUN_METADATA", stored.metadata(connection, project_id))
    else:
        configs = stored.configurations(connection, project_id)
        named += _typed("hp.", "HYPERPARAMETERS", (_values(config.get("hyperparameters")) for config in configs))
    return ProjectColumns(columns=named)


def _column(name: str, location: str, kind: str, heading: str = "") -> ProjectColumn:
    type = f"COLUMN_TYPE_{kind}"
    return ProjectColumn(column=name, location=f"LOCATION_TYPE_{location}", type=type, display_name=heading)


def _plain(listing: Listing) -> Iterator[ProjectColumn]:
    for name, heading in _HEADINGS[listing.location].items():
        yield _column(name, listing.location, _KINDS.get(listing.columns[name].kind, "TEXT"), heading)


def _metrics(connection: Connection, project_id: int) -> Iterator[ProjectColumn]:
    types: dict[tuple[str, str], set[str]] = {}
    for group, name, kind in stored.metric_types(connection, project_id):
        types.setdefault((group, name), set()).add(kind)
    for (group, name), kinds in types.items():
        kind = _OF_METRICS.get(min(kinds), "UNSPECIFIED") if len(kinds) == 1 else "UNSPECIFIED"
        for statistic in sorted(STATISTICS) if kind == "NUMBER" else ["last"]:
            yield _column(f"{group}.{name}.{statistic}", _GROUPS.get(group, "CUSTOM_METRIC"), kind)


def _typed(prefix: str, location: str, values: Iterable[Mapping[str, Any]]) -> Iterator[ProjectColumn]:
    """A column for each name in ``values``, of one type where all of its values have that."""
    types: dict[str, set[str]] = {}
    for one in values:
        for name, value in leaves(one):
            if value not in (None, {}):
                types.setdefault(name, set()).add(_type_of(value))
    for name, kinds in sorted(types.items()):
        yield _column(prefix + name, location, min(kinds) if len(kinds) == 1 else "UNSPECIFIED")


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "UNSPECIFIED"
    if isinstance(value, (int, float)):
        return "NUMBER"
    if isinstance(value, str):
        return "DATE" if len(value) >= len("2025-11-13") and seconds(value) is not None else "TEXT"
    return "ARRAY" if isinstance(value, list) else "UNSPECIFIED"


def _values(hyperparameters: Any) -> dict[str, Any]:
    """Hyperparameters as an experiment configures them, with a value of each in its place."""
    if not isinstance(hyperparameters, dict):
        return {}
    return {name: _value(one) for name, one in hyperparameters.items()}


def _value(one: Any) -> Any:
    if not isinstance(one, dict):
        return one
    if not isinstance(one.get("type"), str):
        return _values(one)
    if one["type"] == "categorical":
        kinds = {_type_of(value) for value in one.get("vals") or []}
        return one["vals"][0] if len(kinds) == 1 else True
    return one.get("val") if one["type"] == "const" else one.get("minval")


@router.get("/{project_id}/experiments/metric-ranges")
def metric_ranges(project_id: int, connection: Reading, records: TheRecords, who: ViewerSomewhere) -> MetricRanges:
    """Of the best trials of its experiments."""
    filing.project(records, project_id)
    ranges = stored.metric_ranges(connection, project_id)
    return MetricRanges(ranges=[MetricRange(metrics_name=name, min=low, max=high) for name, low, high in ranges])


@router.get("/{project_id}/metadata/{key:path}")
def metadata_values(
    project_id: int, key: str, connection: Reading, records: TheRecords, who: ViewerSomewhere
) -> MetadataValues:
    """The texts that runs of the project have at this key, such as ``data.set``."""
    filing.project(records, project_id)
    values: set[str] = set()
    for metadata in stored.metadata(connection, project_id):
        value = at_path(metadata, key)
        values.update(item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str))
    return MetadataValues(values=sorted(values))
