"""What a site allows one experiment, asked for over the REST API."""

from __future__ import annotations

import pytest

from dethpc.client.nouns import config_policies
from dethpc.config.site import SiteConfig
from dethpc.errors import ConfigError, Refused
from tests.master.conftest import Served
from tests.master.http.test_jobs import create, update

SEARCH = """
name: digits
entrypoint: python3 train.py
searcher: {{name: random, metric: loss, max_trials: {trials}}}
hyperparameters: {{lr: {{type: double, minval: 0.001, maxval: 0.1}}}}
resources: {{slots_per_trial: {slots}{more}}}
"""


@pytest.fixture
def site() -> SiteConfig:
    return SiteConfig.model_validate({"limits": {"trials_per_experiment": 5, "slots_per_experiment": 2}})


def text(trials: int = 3, slots: int = 1, more: str = "") -> str:
    return SEARCH.format(trials=trials, slots=slots, more=more)


def test_what_is_beyond_them_is_not_created(served: Served) -> None:
    with pytest.raises(ConfigError, match="searcher: the search has 6 trials; the site allows 5 for one experiment"):
        create(served, text(trials=6))
    with pytest.raises(
        ConfigError, match="slots_per_trial: 3 is too much; the site allows one experiment 2 slots at once"
    ):
        create(served, text(slots=3))
    with pytest.raises(ConfigError, match="max_slots: 4 is too much"):
        create(served, text(more=", max_slots: 4"))
    assert served.session.get("/api/v1/experiments")["experiments"] == []


def test_an_experiment_has_no_more_slots_at_once_and_cannot_be_given_more(served: Served) -> None:
    created = create(served, text())
    assert created["config"]["resources"]["max_slots"] == 2
    for beyond in (3, None):
        with pytest.raises(Refused, match="max_slots can be 2 at most"):
            served.session.patch(f"/api/v1/experiments/{created['id']}", json={"resources": {"maxSlots": beyond}})
    served.session.patch(f"/api/v1/experiments/{created['id']}", json={"resources": {"maxSlots": 1}})
    assert (
        served.session.get(f"/api/v1/experiments/{created['id']}")["experiment"]["config"]["resources"]["max_slots"]
        == 1
    )


def test_a_policy_that_allows_less_counts(served: Served) -> None:
    for most, least in ((1, 1), (9, 2)):
        config_policies.put(served.session, f"constraints: {{resources: {{max_slots: {most}}}}}")
        assert create(served, text())["config"]["resources"]["max_slots"] == least


def test_who_got_within_a_later_limit_moves_whatever_was_asked_at_first(served: Served) -> None:
    limits = served.daemon.installation.site.limits
    object.__setattr__(limits, "slots_per_experiment", None)
    created = create(served, text(more=", max_slots: 4"))
    object.__setattr__(limits, "slots_per_experiment", 2)
    with pytest.raises(ConfigError, match="max_slots: 4 is too much"):
        update(served, {"jobId": created["jobId"], "resourcePool": "default"})
    served.session.patch(f"/api/v1/experiments/{created['id']}", json={"resources": {"maxSlots": 2}})
    update(served, {"jobId": created["jobId"], "resourcePool": "default"})
