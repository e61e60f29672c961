"""``det simulate``: figures before a search is run. It needs no master."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

CONFIG = """\
name: digits
entrypoint: python3 train.py
searcher: {name: random, metric: loss, max_trials: 6, max_concurrent_trials: 4}
hyperparameters: {lr: {type: log, minval: -3, maxval: -1, base: 10}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(CONFIG)
    return tmp_path


WORDS = ("--slots", 8, "--startup", 10, "--step-time", 2, "--length", 20)


def test_it_prints_what_the_search_takes_and_draws_slots_over_time(det: Any, folder: Path) -> None:
    done = det("simulate", "config.yaml", *WORDS)
    assert done.returncode == 0, done.stderr
    fields = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    fields = {name: value.strip() for name, value in fields.items()}
    assert fields["trials"].startswith("6 ") and fields["jobs"] == "6"
    assert fields["GPU-hours"] == "0.1" and fields["makespan"] == "1 min 40 s"
    assert fields["simulated in"].endswith(" s")
    chart = done.stdout.split("slots held\n")[1].splitlines()
    assert chart[0] == "4 |" + "#" * 30, "four trials in the first half"
    assert chart[4] == "2 |" + "#" * 60, "and two until the end"
    assert chart[-1].split() == ["0", "1", "min", "40", "s"]
    assert all(line.isascii() for line in chart)
    assert not (folder / "home").exists(), "no master was started"


def test_json_has_the_figures_and_what_was_assumed(det: Any, folder: Path) -> None:
    done = det("simulate", "config.yaml", *WORDS, "--json")
    found = json.loads(done.stdout)
    assert (found["trials"], found["jobs"], found["makespanSeconds"]) == (6, 6, 100)
    assert found["slotHours"] == pytest.approx(300 / 3600)
    assert found["assumed"]["length"] == 20 and found["assumed"]["slotsPerNode"] == 8
    assert found["best"][-1]["value"] == min(best["value"] for best in found["best"])
    assert len(found["slotsOverTime"]["slots"]) == 100


def test_a_seed_repeats_it(det: Any, folder: Path) -> None:
    words = ("simulate", "config.yaml", "--slots", 2, "--preemption", 0.01, "--load", 0.3, "--spread", 0.5, "--json")
    once, again, other = (json.loads(det(*words, "--seed", seed).stdout) for seed in (5, 5, 6))
    for found in (once, again, other):
        del found["simulatedIn"]
    assert once == again != other
    assert once["attempts"] > once["jobs"]


def test_curves_of_an_earlier_experiment_are_replayed(det: Any, folder: Path) -> None:
    (folder / "old.csv").write_text("trial,step,loss\n" + "".join(f"{t},20,{t / 10}\n" for t in range(1, 7)))
    found = json.loads(det("simulate", "config.yaml", *WORDS, "--curves", "old.csv", "--json").stdout)
    assert found["best"][-1]["value"] == 0.1


@pytest.mark.parametrize(
    "words, told",
    [
        (("--config", "resources.slots_per_trial=64"), "a trial wants 64 slots; the cluster has 32"),
        (("--slots", 12), "is not a multiple of 8 slots"),
        (("--slots", 8, "--nodes", 2), "mutually exclusive"),
        (("--config", "searcher.max_trials=0"), "searcher.max_trials"),
        (("--curves", "config.yaml"), "no column named trial"),
    ],
)
def test_what_cannot_be_simulated_is_said(det: Any, folder: Path, words: tuple[Any, ...], told: str) -> None:
    done = det("simulate", "config.yaml", *words)
    assert done.returncode in (1, 2)
    assert told in done.stderr and "Traceback" not in done.stderr
