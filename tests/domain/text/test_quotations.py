"""What repeats a configuration is told from what a program says."""

from __future__ import annotations

import json
import pprint
import shlex

import pytest
import yaml

from dethpc.domain.text.quotations import Quotations, configured, quotes

POLICIES = [
    {"name": "bad disk", "pattern": ".*I/O error on /scratch.*", "action": "exclude_node"},
    {"name": "a card", "pattern": 'device "\\d+" is lost', "action": "exclude_node"},
    {"name": "long", "pattern": "the data of the training are not " * 4 + "there"},
    {"name": "CUDA OOM", "pattern": "CUDA out of memory"},
]
CONFIG = {"name": "x", "entrypoint": "python3 train.py", "log_policies": POLICIES, "max_restarts": 3}
ENVIRONMENT = {"A": "1", "DET_EXPERIMENT_CONFIG": json.dumps(CONFIG), "DET_SLOT_IDS": "[0]"}
ERROR = "RuntimeError: CUDA out of memory"


DUMPS = {
    "env": "".join(f"{name}={value}\n" for name, value in ENVIRONMENT.items()),
    "export -p": "".join(f"declare -x {name}={shlex.quote(value)}\n" for name, value in ENVIRONMENT.items()),
    "os.environ": f"environ({ENVIRONMENT})\n",
    "pprint of os.environ": pprint.pformat(ENVIRONMENT),
    "yaml": yaml.safe_dump(CONFIG),
    "yaml, deep": yaml.safe_dump({"experiment": {"config": CONFIG}}),
    "yaml, flow": yaml.safe_dump(CONFIG, default_flow_style=True),
    "json": json.dumps(CONFIG),
    "json, indented": json.dumps(CONFIG, indent=2),
    "json in json": json.dumps({"env": ENVIRONMENT}),
    "pprint": pprint.pformat(CONFIG),
    "pprint, narrow": pprint.pformat(CONFIG, width=30),
    "repr": repr(CONFIG),
    "set -x": f"+ export {shlex.quote('DET_EXPERIMENT_CONFIG=' + json.dumps(CONFIG))}\n+ grep -q 'CUDA out of memory' log",
    "dethpc's note": 'dethpc: log policy "CUDA OOM": (log "CUDA out of memory" matched regex CUDA out of memory)',
}
ALONE = {
    "repr of the list": repr(POLICIES),
    "json of the list": json.dumps(POLICIES),
    "json of the list, indented": json.dumps(POLICIES, indent=1),
    "yaml of the list": yaml.safe_dump(POLICIES, width=1000),
    "a table": "".join(f"| pattern | {policy['pattern']} |\n" for policy in POLICIES),
    "key=value": "".join(f"Policy(pattern={policy['pattern']!r})\n" for policy in POLICIES),
}


@pytest.mark.parametrize("dump", DUMPS.values(), ids=DUMPS)
def test_no_line_of_a_printed_configuration_is_a_message_and_the_next_one_is(dump: str) -> None:
    quotations = Quotations()
    lines = [line for line in dump.splitlines() if not quotations.repeats(line) and not quotes(line)]
    assert not [line for line in lines for policy in POLICIES if policy["pattern"].strip(".*")[:20] in line]
    assert not quotations.repeats(ERROR) and not quotations.repeats("  indented by itself")


@pytest.mark.parametrize("dump", ALONE.values(), ids=ALONE)
def test_a_pattern_that_is_printed_behind_its_key_is_left_out_of_its_line(dump: str) -> None:
    for policy in POLICIES:
        found = configured(policy["pattern"])
        assert not any(configured_text(line, policy["pattern"]) for line in found.sub("\n", dump).splitlines())


def configured_text(line: str, pattern: str) -> bool:
    return pattern.strip(".*")[:20] in line


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("CUDA out of memory", ERROR),
        ("libcuda.so", "libcuda.so: cannot open shared object file"),
        (".*I/O error on /scratch.*", "cp: I/O error on /scratch/data"),
        ("pattern", "ValueError: pattern is wrong"),
        ("a|b", "a"),
    ],
)
def test_what_a_program_says_stays(pattern: str, line: str) -> None:
    assert configured(pattern).sub("\n", line) == line and not Quotations().repeats(line) and not quotes(line)


def test_workers_that_print_at_once_do_not_disturb_each_other() -> None:
    quotations = Quotations()
    assert quotations.repeats("log_policies:", 0)
    assert not quotations.repeats(ERROR, 1)
    assert quotations.repeats("- pattern: CUDA out of memory", 0)
    assert not quotations.repeats(ERROR, 0) and not quotations.repeats("  File x", 0)
