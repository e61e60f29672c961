"""Templates of configurations as records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dethpc.config import template as config_template
from dethpc.config.secrets import revealed
from dethpc.config.wording import did_you_mean
from dethpc.domain.records import UNCATEGORIZED, Template
from dethpc.domain.text.names import check_template
from dethpc.errors import AlreadyExists, ConfigError, NotFound
from dethpc.master.durable.records import RecordReader, Records
from dethpc.master.experiments import filing


def get(records: RecordReader, name: str) -> Template:
    """Raises NotFound, with the names that there are."""
    for row in records.find(Template, name=name):
        return row
    names = sorted(row.name for row in records.find(Template))
    others = did_you_mean(name, names) or (f"there are: {', '.join(names[:20])}" if names else "there is none")
    raise NotFound(f"template {name!r} not found; {others}")


def named(records: RecordReader, name: str) -> config_template.Template:
    """What an experiment is laid over. Raises NotFound."""
    return config_template.Template(name, get(records, name).config)


def create(records: Records, name: str, config: Mapping[str, Any], workspace_id: int = 0) -> Template:
    """Raises AlreadyExists, ConfigError, NotFound for a workspace that is not there, Refused."""
    check_template(name)
    with records.exclusive():
        if records.find(Template, name=name):
            raise AlreadyExists(f"template {name!r} already exists")
        return _put(records, name, config, {}, workspace_id or UNCATEGORIZED)


def change(records: Records, name: str, config: Mapping[str, Any], workspace_id: int = 0) -> Template:
    """Put ``config`` in the place of what it was. ``workspace_id``: 0 leaves it where it is. Raises as ``create``."""
    with records.exclusive():
        row = get(records, name)
        return _put(records, name, config, row.config, workspace_id or row.workspace_id)


def rename(records: Records, name: str, new_name: str) -> Template:
    """Raises NotFound, AlreadyExists, Refused."""
    with records.exclusive():
        row = get(records, name)
        if new_name == name:
            return row
        renamed = create(records, new_name, row.config, row.workspace_id)
        records.drop(row)
        return renamed


def _put(
    records: Records, name: str, config: Mapping[str, Any], before: Mapping[str, Any], workspace_id: int
) -> Template:
    """``before``: whose secrets stand for those that ``config`` has masked, as it was shown."""
    plain, problems = revealed(config, [before])
    if problems:
        raise ConfigError(problems)
    config_template.check(config_template.Template(name, plain))
    row = Template(name, dict(plain), filing.open_workspace(records, workspace_id).id)
    records.put(row)
    return row
