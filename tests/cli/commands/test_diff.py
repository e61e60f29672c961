"""``det experiment diff``."""

from __future__ import annotations

import copy
import json
from typing import Any


def test_two_experiments_that_are_equal_are_said_to_be(det: Any, master: Any) -> None:
    master.other_config = copy.deepcopy(master.config)
    done = det("e", "diff", 1, 2, master=master)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Experiments 1 and 2 have the same configuration and the same code\n"


def test_fields_and_lines_that_differ_are_shown(det: Any, master: Any) -> None:
    master.other_config = copy.deepcopy(master.config)
    master.other_config["searcher"]["smaller_is_better"] = False
    master.other_config["hyperparameters"] = {"lr": {"type": "log", "minval": -4}, "sizes": [1, 2]}
    lines = "@@ -1 +1 @@\n-lr = 1\n+lr = 2\n"
    master.code_changes = [
        {"path": "train.py", "kind": "changed", "diff": lines, "why": ""},
        {"path": "data.bin", "kind": "added", "diff": "", "why": "not text"},
    ]
    done = det("e", "diff", 1, 2, master=master)
    table, _, rest = done.stdout.partition("\n\n")
    assert [line.split() for line in table.splitlines()] == [
        ["Field", "Experiment", "1", "Experiment", "2"],
        ["searcher.smaller_is_better", "true", "false"],
        ["hyperparameters.lr.type", "-", "log"],
        ["hyperparameters.lr.minval", "-", "-4"],
        ["hyperparameters.sizes", "-", "[1,", "2]"],
    ]
    assert rest == f"--- 1/train.py\n+++ 2/train.py\n{lines}\ndata.bin: added (not text)\n"
    found = json.loads(det("e", "diff", 1, 2, "--json", master=master).stdout)
    assert found["config"][0] == {"field": "searcher.smaller_is_better", "before": True, "after": False}
    assert [change["path"] for change in found["code"]["changes"]] == ["train.py", "data.bin"]
