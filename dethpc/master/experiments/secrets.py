"""Restores the secrets of a configuration that was shown with them masked and is submitted again as a new experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dethpc.config.secrets import revealed
from dethpc.config.source import dump, read
from dethpc.domain.secrets import MASK
from dethpc.errors import ConfigError
from dethpc.state import queries
from dethpc.state.store import SqlStore


def revealed_text(
    config_yaml: str, store: SqlStore, defaults: Mapping[str, Any], owner: str, parent_id: int | None
) -> str:
    """The configuration with each ``MASK`` replaced by the secret: the parent's, if it has the same owner, else the site's.

    One without any stays as it was written. Raises ConfigError for each that nobody knows.
    """
    if MASK not in config_yaml:
        return config_yaml
    source, problems = read(config_yaml, "config")
    if problems:
        return config_yaml  # whoever loads it says what is wrong
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
