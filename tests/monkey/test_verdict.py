"""A judge who finds nothing is believed only if he finds what is there."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.monkey.chain import loss, states
from tests.monkey.verdict import Verdict, judge_overlap, judge_reports
from tests.monkey.world import Zombie

HPARAMS = {"lr": 0.25, "most": 9}
TRUTH = [(step, loss(state)) for step, state in states(0.25, 9)]
NOTHING: dict[str, set[int]] = {"training": set(), "validation": set()}


def judge(training: list[tuple[int, float]], damaged: dict[str, set[int]] = NOTHING) -> Verdict:
    verdict = Verdict()
    judge_reports("trial 1", HPARAMS, {"training": training, "validation": TRUTH[2::3]}, damaged, verdict)
    return verdict


def test_an_undisturbed_chain_is_clean() -> None:
    verdict = judge(TRUTH)
    assert verdict.clean and verdict.reports == 9 + 3
    assert all(value != following for (_, value), (_, following) in pairwise(TRUTH))


@pytest.mark.parametrize(
    ("training", "what"),
    [
        (TRUTH[:4] + TRUTH[5:], "lost"),
        (TRUTH[:5] + TRUTH[4:], "doubled"),
        (TRUTH[:8] + [(9, TRUTH[8][1] + 1e-12)], "wrong"),
        (TRUTH[:4] + [(step, value) for (step, _), (_, value) in pairwise(TRUTH[4:])], "wrong"),
        (TRUTH + [(10, 0.5)], "wrong"),
    ],
    ids=["a step is lost", "a step is doubled", "a value is another", "a step is left out of the chain", "a step is too much"],
)  # fmt: skip
def test_what_is_wrong_with_a_chain_is_found(training: list[tuple[int, float]], what: str) -> None:
    verdict = judge(training)
    assert getattr(verdict, what) and not verdict.clean


def test_only_the_report_that_was_damaged_may_be_missing() -> None:
    verdict = judge(TRUTH[:4] + TRUTH[5:], {"training": {5}, "validation": set()})
    assert verdict.clean and verdict.damaged == 1
    assert judge(TRUTH[:4] + TRUTH[6:], {"training": {5}, "validation": set()}).lost == ["trial 1: training of step 6"]


@pytest.mark.parametrize(
    ("zombies", "excused"),
    [
        ([], False),
        ([Zombie(50, "n1")], True),
        ([Zombie(50, "n2")], False),
        ([Zombie(29.8, "n1")], True),  # its job had been started, and its training had not
        ([Zombie(10, "n1")], False),
        ([Zombie(90, "")], False),
        ([Zombie(50, "")], True),
    ],
)
def test_two_executions_at_once_are_excused_by_a_node_that_was_given_up_meanwhile(
    zombies: list[Zombie], excused: bool
) -> None:
    overlap: dict[str, Any] = {"attempt": "1.1.1.1", "at": 70, "holder": {"attempt": "1.1.1.0", "at": 30, "node": "n1"}}
    verdict = Verdict()
    judge_overlap(overlap, zombies, verdict)
    assert (verdict.overlaps, verdict.clean) == ((1, True) if excused else (0, False))
