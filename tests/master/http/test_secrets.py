"""No answer shows a secret of a configuration; runs have it, and a fork of the experiment has it too."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from dethpc.client.nouns import cluster, experiments
from dethpc.client.session import Session
from dethpc.config.site import SiteConfig
from dethpc.domain.facts import Checkpoint
from dethpc.domain.secrets import MASK
from dethpc.errors import ConfigError
from dethpc.state import queries
from tests.master.conftest import CONFIG, Served, experiment, trained, trial

SECRETS = {**CONFIG, "environment": {"environment_variables": ["WANDB_API_KEY=hush", "PLAIN=seen"]}}


def create(session: Session, config: Any, **options: Any) -> dict[str, Any]:
    answer: dict[str, Any] = experiments.create(session, yaml.safe_dump(config), [], activate=False, **options)
    return answer


def stored(served: Served, experiment_id: int) -> tuple[Any, str]:
    with served.daemon.store.read() as connection:
        fact = queries.experiment(connection, experiment_id)
    return fact.config["environment"]["environment_variables"]["cuda"], fact.original_config


def test_the_masters_configuration_shows_no_secret(served: Served) -> None:
    section = {"type": "s3", "bucket": "b", "access_key": "AKIA", "secret_key": "hush"}
    served.daemon.installation.site = SiteConfig.model_validate(
        {"cluster_name": "testbed", "checkpoint_storage": section}
    )
    shown = cluster.master_config(served.session)["checkpoint_storage"]
    assert shown == {**section, "access_key": MASK, "secret_key": MASK}


def test_no_answer_about_an_experiment_shows_its_secrets(served: Served) -> None:
    answer = create(served.session, SECRETS)
    number = answer["experiment"]["id"]
    for shown in (
        answer,
        experiments.get(served.session, number),
        experiments.listing(served.session),
        create(served.session, SECRETS, validate_only=True),
    ):
        assert "hush" not in str(shown) and "PLAIN=seen" in str(shown)
    assert stored(served, number)[0] == ["WANDB_API_KEY=hush", "PLAIN=seen"], "its runs have it"


def test_no_answer_about_a_checkpoint_shows_the_storages_secrets(served: Served) -> None:
    storage = {"type": "s3", "bucket": "b", "access_key": "AKIA", "secret_key": "hush"}
    rows = trained(trial(1))
    for row in rows:
        if isinstance(row, Checkpoint):
            row.storage = storage
    served.put([experiment(1, config={**CONFIG, "checkpoint_storage": storage}), *rows])
    answer = experiments.checkpoints(served.session, 1)
    assert answer and "hush" not in str(answer) and MASK in str(answer)


def test_a_fork_of_what_was_shown_has_the_secrets_of_its_parent(served: Served) -> None:
    parent = create(served.session, SECRETS)["experiment"]
    whole = create(served.session, {**parent["config"], "name": "fork"}, parent=parent["id"])["experiment"]
    as_written = experiments.create(served.session, parent["originalConfig"], [], activate=False, parent=parent["id"])
    for fork in (whole, as_written["experiment"]):
        variables, text = stored(served, fork["id"])
        assert variables == ["WANDB_API_KEY=hush", "PLAIN=seen"] and "hush" in text


def test_without_its_parent_a_hidden_secret_is_refused_with_its_place(served: Served) -> None:
    parent = create(served.session, SECRETS)["experiment"]
    with pytest.raises(ConfigError) as caught:
        create(served.session, yaml.safe_load(parent["originalConfig"]))
    (problem,) = caught.value.problems
    assert problem.field == "environment.environment_variables[0]" and problem.line is not None
    assert "secret that was not shown" in problem.message and "parent" in str(problem.hint)


def test_another_owners_experiment_gives_no_secret(served: Served) -> None:
    config = {**CONFIG, "environment": {"environment_variables": {"cuda": ["WANDB_API_KEY=hush"]}}}
    served.put([experiment(1, owner="somebody", config=config)])
    shown = experiments.get(served.session, 1)["config"]
    assert shown["environment"]["environment_variables"]["cuda"] == [f"WANDB_API_KEY={MASK}"]
    with pytest.raises(ConfigError):
        create(served.session, shown, parent=1)
