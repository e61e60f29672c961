"""``upgrade``: the text of an older configuration in its present form."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dethpc.config.dialects import translate
from dethpc.config.source import dump, read
from dethpc.config.upgrade import upgrade
from dethpc.errors import ConfigError
from tests.example_counts import examples

OLD = """\
# Digits, as of last summer.
description: digits   # a name

batches_per_step: 50  # half of the default
min_validation_period: 2
searcher:
    # what we look for
    name: adaptive
    metric: "loss"    # smaller is better

    target_trial_steps: 256 # steps!
    step_budget: 2560
hyperparameters: {global_batch_size: 64, lr: 1e-3}
"""
NEW = """\
# Digits, as of last summer.
description: digits   # a name

scheduling_unit: 50  # half of the default
min_validation_period: {batches: 100}
searcher:
    # what we look for
    name: adaptive
    metric: "loss"    # smaller is better

    max_length: {batches: 12800} # steps!
    budget: {batches: 128000}
hyperparameters: {global_batch_size: 64, lr: 1e-3}
"""


def test_only_older_fields_change_and_every_comment_stays() -> None:
    text, changes = upgrade(OLD, "c.yaml")
    assert text == NEW
    assert changes[0] == "c.yaml:4: batches_per_step: 50 -> scheduling_unit: 50 (its name today)"
    assert len(changes) == 4


def test_a_length_becomes_a_metric_and_a_value() -> None:
    text, _ = upgrade(
        "searcher:\n  name: adaptive_asha\n  max_length:  # long\n    epochs: 5  # five\n  metric: loss\n"
    )
    assert text == (
        "searcher:\n  name: adaptive_asha\n  # long\n  time_metric: epochs\n  max_time: 5  # five\n  metric: loss\n"
    )


def test_fields_in_braces_stay_in_braces() -> None:
    text, _ = upgrade("searcher: {name: adaptive_asha, max_length: {batches: 5}, metric: loss} # x\n")
    assert text == "searcher: {name: adaptive_asha, time_metric: batches, max_time: 5, metric: loss} # x\n"
    text, _ = upgrade("searcher: {name: single,\n  max_steps: # why\n    5}\n")
    assert text == "searcher: {name: single,\n  # why\n  max_length: {batches: 500}}\n"


def test_comments_fit_between_braces() -> None:
    text, _ = upgrade("searcher: {name: single, max_steps: # why\n    5}\n")
    assert (
        text == "searcher: {name: single, " + "\n" + 25 * " " + "# why\n" + 25 * " " + "max_length: {batches: 500}}\n"
    )
    assert read(text, "x")[0].data == {"searcher": {"name": "single", "max_length": {"batches": 500}}}


def test_the_present_form_is_left_as_it_is() -> None:
    assert upgrade(NEW) == (NEW, [])
    assert upgrade("") == ("", [])


@pytest.mark.parametrize(
    "text",
    [
        "data: {n: &n 5}\nsearcher: {name: single, max_steps: *n}\n",
        "data: &base {max_steps: 5}\nsearcher: {<<: *base, name: single}\n",
    ],
)
def test_what_an_anchor_shares_is_not_touched(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        upgrade(text, "c.yaml")
    (problem,) = caught.value.problems
    assert problem.field == "searcher.max_steps" and "max_length: {batches: 500}" in problem.message


def test_a_mistake_is_an_error() -> None:
    with pytest.raises(ConfigError, match="batches_per_step"):
        upgrade("batches_per_step: many\n")
    with pytest.raises(ConfigError, match="YAML"):
        upgrade("a: [\n")


_COUNT = st.integers(1, 10**6)
_LENGTH = st.one_of(_COUNT, st.builds(lambda u, n: {u: n}, st.sampled_from(["batches", "records", "epochs"]), _COUNT))
_SEARCHER = st.one_of(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["single", "random", "grid", "adaptive_simple"]), "max_steps": _COUNT}
    ),
    st.fixed_dictionaries(
        {"name": st.sampled_from(["adaptive_asha", "single", "async_halving"]), "max_length": _LENGTH}
    ),
    st.fixed_dictionaries({"name": st.just("adaptive"), "target_trial_steps": _COUNT, "step_budget": _COUNT}),
    st.fixed_dictionaries({"name": st.just("adaptive"), "max_length": _LENGTH, "budget": _LENGTH}),
    st.fixed_dictionaries({"name": st.just("pbt"), "steps_per_round": _COUNT}),
)
OLDER: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"searcher": _SEARCHER},
    optional={
        "batches_per_step": _COUNT,
        "min_validation_period": st.one_of(st.just(0), _LENGTH),
        "min_checkpoint_period": st.one_of(st.just(0), _LENGTH),
        "records_per_epoch": _COUNT,
        "hyperparameters": st.one_of(
            st.fixed_dictionaries({"global_batch_size": _COUNT}),
            st.just({"global_batch_size": {"type": "const", "val": 16}, "x": [1]}),
        ),
    },
)


@settings(max_examples=examples(200), deadline=None)
@given(OLDER, st.booleans())
def test_the_upgraded_text_says_the_same_and_translating_again_changes_nothing(
    data: dict[str, Any], braces: bool
) -> None:
    import yaml

    text = yaml.safe_dump(data, default_flow_style=True) if braces else dump(data)
    assert read(text, "x")[0].data == data
    translation = translate(data)
    if translation.problems:
        with pytest.raises(ConfigError):
            upgrade(text)
        return
    new, changes = upgrade(text)
    assert read(new, "x")[0].data == translation.data
    assert len(changes) == len(translation.edits)
    assert translate(translation.data) == (translation.data, [], [])
    assert upgrade(new) == (new, [])
