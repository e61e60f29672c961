"""Log policies are judged on the node while the log is written, and no pattern keeps the log waiting."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from dethpc.domain.attempts.log_policies import CANCEL_RETRIES, EXCLUDE_NODE, LogPolicy
from dethpc.exec import log_policies
from dethpc.exec.log_policies import LogPolicies
from dethpc.rundir.layout import AttemptDir
from tests.exec.fixtures import Run

CRASH = "import sys\nprint('[rank=3] step 1 fails')\nsys.stderr.write('RuntimeError: bad card\\n')\nsys.exit(7)\n"


class Judged:
    def __init__(self, tmp_path: Path, *policies: LogPolicy) -> None:
        self.attempt = AttemptDir(tmp_path)
        self.notes: list[str] = []
        self.policies = LogPolicies(
            policies, "n0", self.attempt.matched(0), lambda level, text: self.notes.append(text)
        )

    def matched(self) -> list[tuple[str, str]]:
        return [(match.pattern, match.line) for match in self.attempt.log_matches(1)]


def test_what_matched_stands_in_the_run_directory_and_in_the_log_once(run: Run) -> None:
    policies: list[dict[str, Any]] = [
        {"name": "card", "pattern": "^RuntimeError: .* card$", "action": EXCLUDE_NODE},
        {"pattern": "step \\d", "action": CANCEL_RETRIES},
        {"name": "seen", "pattern": "fails"},
        {"name": "never", "pattern": "no such line"},
        {"name": "CUDA OOM"},
    ]
    code, end = run.run(["python3", "-u", "train.py"], {"train.py": CRASH}, config={"log_policies": policies})
    assert (
        code == 7
        and end["message"] == "exit code 7: RuntimeError: bad card"
        and not any("polic" in line for line in end["tail"])
    )
    found = run.attempt().log_matches(1)
    assert [(m.name, m.action, m.line, m.node) for m in sorted(found, key=lambda m: m.pattern)] == [
        ("card", EXCLUDE_NODE, "RuntimeError: bad card", "n0"),
        ("seen", "", "step 1 fails", "n0"),
        ("", CANCEL_RETRIES, "step 1 fails", "n0"),
    ]
    log = run.text()
    words = '(log "RuntimeError: bad card" matched regex ^RuntimeError: .* card$) therefore will not schedule on n0'
    assert f'dethpc: log policy "card": {words} after a failure' in log
    assert 'a log policy: (log "step 1 fails" matched regex step \\d) therefore will not restart after a failure' in log
    assert 'dethpc: log policy "seen": (log "step 1 fails" matched regex fails)' in log
    assert log.count("matched regex") == 3


def test_a_pattern_that_takes_for_ever_is_given_up_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_policies, "BUDGET", 0.1)
    judged = Judged(tmp_path, LogPolicy("slow", "(a+)+$", EXCLUDE_NODE), LogPolicy("quick", "b$", ""))
    judged.policies.judge(["a" * 60 + "b"])
    assert judged.matched() == [("b$", "a" * 60 + "b")]
    assert (
        'log policy "slow" watches no longer: its pattern takes too long to be searched for: (a+)+$' in judged.notes[0]
    )
    judged.policies.judge(["a"])
    assert len(judged.notes) == 2


def test_many_lines_that_each_take_long_use_up_the_budget_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = itertools.count(step=0.15)  # each line takes so many seconds
    judged = Judged(tmp_path, LogPolicy("slow", "b", ""))
    monkeypatch.setattr(log_policies.time, "process_time", lambda: next(looks))
    for _ in range(7):
        judged.policies.judge(["a"])
    assert judged.notes == []
    judged.policies.judge(["a"])
    assert "watches no longer" in judged.notes[0]


def test_policies_share_their_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node's loop waits for all of them: preemption is not to wait minutes for a hundred."""
    looks = itertools.count(step=0.15)  # each line takes each of them so many seconds
    judged = Judged(tmp_path, LogPolicy("slow", "b", ""), LogPolicy("other", "c", ""))
    monkeypatch.setattr(log_policies.time, "process_time", lambda: next(looks))
    for _ in range(4):
        judged.policies.judge(["a"])
    assert judged.notes == []
    judged.policies.judge(["a"])
    assert len(judged.notes) == 2 and all("watches no longer" in note for note in judged.notes)


def test_each_node_says_what_it_found(tmp_path: Path) -> None:
    attempt, policy = AttemptDir(tmp_path), LogPolicy("card", "bad", EXCLUDE_NODE)
    for rank in (0, 2):
        LogPolicies([policy], f"n{rank}", attempt.matched(rank), lambda level, text: None).judge(["bad"])
    assert [match.node for match in attempt.log_matches(3)] == ["n0", "n2"]


@pytest.mark.parametrize("damaged", ['{"matches": [', '{"matches": 5}', '{"matches": [null, "x", [1]]}', "[]"])
def test_what_one_node_wrote_and_cannot_be_read_hides_nothing_of_others(tmp_path: Path, damaged: str) -> None:
    attempt, policy = AttemptDir(tmp_path), LogPolicy("card", "bad", EXCLUDE_NODE)
    attempt.matched(0).write_text(damaged)
    LogPolicies([policy], "n1", attempt.matched(1), lambda level, text: None).judge(["bad"])
    assert [match.node for match in attempt.log_matches(2)] == ["n1"]


def test_a_policy_of_an_earlier_release_that_cannot_be_read_is_told_of(tmp_path: Path) -> None:
    judged = Judged(tmp_path, LogPolicy("old", r"a\z(", CANCEL_RETRIES))
    assert judged.notes[0].startswith('dethpc: log policy "old" has no effect: its pattern is not a regular expression')


def test_what_a_full_disk_did_not_take_is_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    judged = Judged(tmp_path, LogPolicy("x", "x", ""))
    with monkeypatch.context() as patch:
        patch.setattr(log_policies, "write_json", full)
        judged.policies.judge(["x"])
    assert judged.matched() == [] and len(judged.notes) == 1
    judged.policies.write()
    assert judged.matched() == [("x", "x")]


@pytest.mark.parametrize(
    "printed",
    [
        "import os; [print(f'{n}={v}') for n, v in sorted(os.environ.items())]",
        "import os, pprint; pprint.pprint(dict(os.environ))",
        "import determined, json; print(json.dumps(determined.get_cluster_info().trial._config, indent=1))",
        "import determined; print(determined.get_cluster_info().trial._config['log_policies'])",
        "import os, subprocess; subprocess.run(['bash', '-xc', 'A=$DET_EXPERIMENT_CONFIG; true bad card'])",
    ],
    ids=["env", "pprint", "configuration", "policies alone", "set -x"],
)
def test_a_policy_does_not_match_where_it_is_printed_and_its_node_is_not_to_blame(run: Run, printed: str) -> None:
    policies: list[dict[str, Any]] = [
        {"name": "card", "pattern": ".*bad card.*", "action": EXCLUDE_NODE},
        {"name": "ECC Error", "pattern": ".*uncorrectable ECC error encountered.*", "action": EXCLUDE_NODE},
        {"name": "plain", "pattern": "CUDA out of memory", "action": CANCEL_RETRIES},
    ]
    code, end = run.run(
        ["python3", "-u", "train.py"],
        {"train.py": f"{printed}\nraise SystemExit(3)\n"},
        config={"log_policies": policies},
    )
    assert code == 3 and "uncorrectable ECC" in run.text()
    assert run.attempt().log_matches(1) == [] and "uncorrectable" not in str(end)


def test_an_error_beside_a_printed_configuration_still_matches(run: Run) -> None:
    policies: list[dict[str, Any]] = [{"name": "plain", "pattern": "CUDA out of memory", "action": CANCEL_RETRIES}]
    code = "import os; print(os.environ['DET_EXPERIMENT_CONFIG'])\nraise RuntimeError('CUDA out of ' + 'memory')\n"
    run.run(["python3", "-u", "train.py"], {"train.py": code}, config={"log_policies": policies})
    assert [match.line for match in run.attempt().log_matches(1)] == ["RuntimeError: CUDA out of memory"]
