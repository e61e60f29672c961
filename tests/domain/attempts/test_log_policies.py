"""Which patterns are judged on nodes, and what a trial keeps of what matched."""

import pytest
import re2

from dethpc.domain.attempts.log_policies import (
    CANCEL_RETRIES,
    EXCLUDE_NODE,
    LogMatch,
    LogPolicy,
    Noted,
    against_retrying,
    compiled,
)
from dethpc.domain.trial_config import TrialConfig

LINES = ("", "abc", "CUDA out of memory. Tried", "x" * 50 + "ERROR 42", "café 7", "cuda OUT", "a.b", "*a", "12:30 done")


@pytest.mark.parametrize(
    "pattern",
    [
        ".*CUDA out of memory.*", "(?i).*cuda out", ".*?a", ".*", ".*|never", ".*.*b", "(?i)CUDA", r"\bERROR\s+\d+$", "^a",
        "a|b|[^x]7", r"caf.\s", r"\w+\.b", r"é", r"(?P<hour>\d\d):\d\d", "[*]a", "(?s).*done", r"caf\w ",
        r"(?<hour>\d\d):\d\d", r"\Qa.b\E", r"^\Q*a", r"a\z", r"[(?<hour>]", r"\\Qa", r".*(?<first>a)\z",
    ],
)  # fmt: skip
def test_a_pattern_finds_on_nodes_what_re2_finds(pattern: str) -> None:
    for line in LINES:
        assert (compiled(pattern).search(line) is not None) == (re2.search(pattern, line) is not None), line


@pytest.mark.parametrize("pattern", [r"\pL", "[[:alpha:]]+", "(?U)a+", "(a"])
def test_what_python_reads_otherwise_or_not_at_all_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="^not a regular expression of both RE2 and Python's re"):
        compiled(pattern)


def test_what_may_stand_before_costs_nothing() -> None:
    assert compiled(".*CUDA").pattern == "CUDA" and compiled("(?i).*?.*CUDA").pattern == "(?i)CUDA"


def match(name: str = "", action: str = "", node: str = "n0", at: float = 1.0) -> LogMatch:
    return LogMatch(name, "p", action, "a line", node, at)


def test_a_trial_keeps_the_last_name_and_every_excluded_node_beside_what_its_search_knows() -> None:
    search = {"lengths": [8]}
    assert Noted.of(search) == Noted()
    first = Noted.of(search).after([match("b", at=3.0), match("a", EXCLUDE_NODE, at=2.0), match(at=4.0)])
    assert first == Noted("b", ("n0",))
    search = first.into(search)
    assert search["lengths"] == [8] and Noted.of(search) == first
    assert first.after([match("", EXCLUDE_NODE, "n1"), match("", EXCLUDE_NODE)]) == Noted("b", ("n0", "n1"))


def test_what_a_node_wrote_of_a_match_is_read_again_whatever_it_lacks() -> None:
    whole = match("b", CANCEL_RETRIES)
    assert LogMatch.from_json(whole.to_json()) == whole
    assert LogMatch.from_json({"name": None, "at": "x", "line": "a\0b"}) == LogMatch("", "", "", "ab", "", 0.0)
    assert against_retrying([match(), whole]) == whole and against_retrying([match()]) is None


def test_a_name_without_a_pattern_is_no_policy() -> None:
    section = [{"name": "CUDA OOM"}, {"pattern": "x", "action": EXCLUDE_NODE}]
    assert TrialConfig.from_json({"log_policies": section}).log_policies == (LogPolicy("", "x", EXCLUDE_NODE),)
    assert TrialConfig.from_json({}).log_policies == ()
