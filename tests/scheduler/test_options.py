"""The table of sbatch's options, against the sbatch of this machine and against the documentation."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from dethpc.deploy.slurm_dev import Cluster
from dethpc.errors import DethpcError
from dethpc.scheduler.slurm.options import REFUSED, RULES, Argument, Unreadable, Use, read

PAGE = (Path(__file__).parents[2] / "docs" / "sbatch-args.md").read_text()


@pytest.fixture(scope="module")
def help_text(slurm: Cluster) -> str:
    return slurm.run("sbatch", "--help") + slurm.run("sbatch", "--usage")


def test_every_option_that_sbatch_tells_of_is_in_the_table(help_text: str) -> None:
    names = set(re.findall(r"(?<![\w>])--([a-z][a-z-]+)", help_text))
    assert len(names) > 80
    assert names - set(RULES) == set()


def test_every_option_that_sbatch_knows_is_in_the_table(slurm: Cluster) -> None:
    """Of a beginning that is ambiguous it lists all options, those that its help does not tell of too."""
    names = set(
        re.findall(
            r"'--([a-z0-9-]+)'", "".join(complaints(slurm, [f"--{letter}" for letter in string.ascii_lowercase]))
        )
    )
    assert {"network", "tasks-per-node"} <= names
    assert names - set(RULES) == set()


def complaints(cluster: Cluster, words: list[str]) -> Iterator[str]:
    for word in words:
        try:
            cluster.run("sbatch", word)
        except DethpcError as error:
            listed = str(error).split("possibilities:")
            yield listed[1] if len(listed) > 1 else ""


def test_short_options_are_those_of_sbatch(help_text: str) -> None:
    letters = dict(re.findall(r"^ +-(\w),? +--([a-z-]+)", help_text, re.MULTILINE))
    assert len(letters) > 25
    assert {letter: name for letter, name in letters.items() if RULES[name].short != letter} == {}


def test_options_take_values_as_in_sbatch(slurm: Cluster, help_text: str) -> None:
    wrong = {}
    for name in sorted(
        set(re.findall(r"^ +(?:-\w,? +)?--([a-z-]+)", help_text, re.MULTILINE)) - {"help", "usage", "version"}
    ):
        answers = {}
        for word in (f"--{name}", f"--{name}=x"):
            try:
                cluster_answer = slurm.run("sbatch", "--test-only", "--wrap=true", word)
            except DethpcError as error:
                cluster_answer = str(error)
            answers[word] = cluster_answer
        needs, refuses = (
            "requires an argument" in answers[f"--{name}"],
            "doesn't allow an argument" in answers[f"--{name}=x"],
        )
        argument = Argument.REQUIRED if needs else Argument.NONE if refuses else Argument.OPTIONAL
        if RULES[name].argument is not argument:
            wrong[name] = argument
    assert wrong == {}


def test_few_options_are_refused_each_with_its_reason() -> None:
    refused = [rule for rule in RULES.values() if rule.use is Use.REFUSED and not rule.same_as]
    assert len(refused) <= 15
    assert {rule.name for rule in refused} == set(REFUSED)
    for rule in RULES.values():
        assert bool(rule.why) == (rule.use in (Use.REFUSED, Use.TRANSLATED)), rule.name


@pytest.mark.parametrize("use", Use)
def test_the_documentation_says_what_becomes_of_every_option(use: Use) -> None:
    section = PAGE.split(f"### {use.value.capitalize()}")[1].split("\n#")[0]
    documented = set(re.findall(r"`--([a-z-]+)", section))
    assert documented == {rule.name for rule in RULES.values() if rule.use is use and not rule.same_as}


def test_unambiguous_beginnings_are_the_option() -> None:
    for rule in RULES.values():
        (option,) = read([f"--{rule.name}" if rule.argument is Argument.NONE else f"--{rule.name}=1"])
        assert option.name == (rule.same_as or rule.name)
    assert [option.name for option in read(["--parti=a", "--tasks=3", "--arr=1", "--depend", "afterok:1"])] == [
        "partition",
        "ntasks-per-node",
        "array",
        "dependency",
    ]
    for word in ("--n=1", "--ti", "--mem-p=1", "--gpus-per=1"):
        with pytest.raises(Unreadable, match="ambiguous"):
            list(read([word]))
