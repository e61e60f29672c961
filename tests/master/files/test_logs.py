"""Log files are read by offset, merged by time, from either end, and followed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dethpc.master.files import log_follower, logs
from dethpc.master.files.log_follower import Follower
from dethpc.master.files.logs import Filter
from dethpc.rundir import lines, logline
from dethpc.rundir.files import write_json
from dethpc.rundir.home import Home
from dethpc.rundir.layout import RunDir
from tests.memory import megabytes_taken

T0 = 1_763_000_000.0


def put(
    runs: Path,
    run: str,
    k: int,
    node: int,
    *lines: tuple[float, str],
    level: str = "INFO",
    torn: str = "",
    rank: int | None = 0,
) -> None:
    attempt = RunDir(runs / "runs" / run).attempt(k)
    attempt.make()
    with open(attempt.log(node), "a") as file:
        for at, text in lines:
            file.write(logline.format(logline.LogLine(T0 + at, level, None if rank is None else node, "stdout", text)))
        file.write(torn)


def texts(lines: object) -> list[str]:
    return [line.text for line in lines]  # type: ignore[attr-defined]


def test_nodes_are_merged_by_time_and_attempts_follow_each_other(tmp_path: Path) -> None:
    put(tmp_path, "1.1.1", 0, 0, (1, "a"), (3, "c"))
    put(tmp_path, "1.1.1", 0, 1, (2, "b"), (4, "d"))
    put(tmp_path, "1.1.1", 1, 0, (3.5, "e"))
    put(tmp_path, "1.1.2", 0, 0, (9, "f"))
    write_json(RunDir(tmp_path / "runs" / "1.1.1").attempt(0).started, {"nodes": ["alpha", "beta"]})
    sources = logs.sources(Home(tmp_path).find, ["1.1.1", "1.1.2"])
    lines = list(logs.read(sources, Filter()))
    assert texts(lines) == ["a", "b", "c", "d", "e", "f"]
    assert [line.node for line in lines[:3]] == ["alpha", "beta", "alpha"]
    assert texts(logs.read(sources, Filter(), newest_first=True)) == ["f", "e", "d", "c", "b", "a"]
    assert texts(logs.read(sources, Filter(), 2, newest_first=True)) == ["f", "e"]


@pytest.mark.parametrize("nodes", [5, {"alpha": 1}, None])
def test_a_damaged_list_of_nodes_costs_their_names_alone(tmp_path: Path, nodes: object) -> None:
    put(tmp_path, "1.1.1", 0, 0, (1, "a"))
    write_json(RunDir(tmp_path / "runs" / "1.1.1").attempt(0).started, {"nodes": nodes})
    lines = list(logs.read(logs.sources(Home(tmp_path).find, ["1.1.1"]), Filter()))
    assert [(line.text, line.node) for line in lines] == [("a", "node-0")]


def test_ids_are_the_same_from_either_end_and_fit_in_63_bits(tmp_path: Path) -> None:
    put(tmp_path, "1.1.1", 0, 0, (1, "a"), (3, "c"))
    put(tmp_path, "1.1.2", 3, 7, (2, "b"))
    sources = logs.sources(Home(tmp_path).find, ["1.1.1", "1.1.2"])
    forward = [line.id for line in logs.read(sources, Filter())]
    assert forward == [line.id for line in logs.read(sources, Filter(), newest_first=True)][::-1]
    assert len(set(forward)) == 3 and all(0 <= id < 2**63 for id in forward)


def test_what_the_batch_script_and_slurm_wrote_is_in_the_log_as_source_slurm(tmp_path: Path) -> None:
    put(tmp_path, "1.1.1", 0, 0, (1, "a"))
    for run in ("1.1.1", "1.1.2"):  # the second never got as far as a log of its own
        RunDir(tmp_path / "runs" / run).make()
        RunDir(tmp_path / "runs" / run).log.write_text("line 5: module: command not found\nslurmstepd: error: killed\n")
    sources = logs.sources(Home(tmp_path).find, ["1.1.1", "1.1.2"])
    said = ["line 5: module: command not found", "slurmstepd: error: killed"]
    lines = list(logs.read(sources, Filter()))
    assert texts(lines) == ["a", *said, *said]
    assert [(line.source, line.node) for line in lines] == [("task", "node-0"), *[("slurm", "slurm")] * 4]
    assert texts(logs.read(sources, Filter(sources=frozenset({"task"})))) == ["a"]
    assert texts(logs.read(sources, Filter(), newest_first=True)) == [*said[::-1], *said[::-1], "a"]
    assert len({line.id for line in lines}) == 5
    follower = Follower(
        lambda: logs.sources(Home(tmp_path).find, ["1.1.1", "1.1.2"]), Filter(sources=frozenset({"slurm"}))
    )
    assert texts(line for lines in follower.history() for line in lines) == [*said, *said]
    with open(RunDir(tmp_path / "runs" / "1.1.2").log, "a") as file:
        file.write("later\n")
    assert texts(follower.more()) == ["later"]


def test_what_slurm_complains_of_has_the_level_that_slurm_gives_it(tmp_path: Path) -> None:
    put(tmp_path, "1.1.1", 0, 0, (1, "a"))
    said = {
        "slurmstepd: error: *** JOB 30 ON n0 CANCELLED AT 2026-11-20T10:00:00 DUE TO TIME LIMIT ***": "ERROR",
        "slurmstepd-n1: error: Detected 1 oom_kill event in StepId=30.0. Some of the step tasks have been OOM Killed.": "ERROR",
        "srun: error: n0: task 0: Killed": "ERROR",
        "slurmstepd: fatal: cannot fork": "CRITICAL",
        "slurmstepd: warning: the cpuset is small": "WARNING",
        "srun: warning: can't honor --ntasks-per-node": "WARNING",
        "srun: job 30 queued and waiting for resources": "INFO",
        "module: error: no such thing": "INFO",
        "it says slurmstepd: error: x": "INFO",
    }
    RunDir(tmp_path / "runs" / "1.1.1").log.write_text("".join(f"{line}\n" for line in said))
    sources = logs.sources(Home(tmp_path).find, ["1.1.1"])
    assert {line.text: line.level for line in logs.read(sources, Filter()) if line.source == "slurm"} == said
    errors = Filter(levels=frozenset({"ERROR"}))
    wanted = [text for text, level in said.items() if level == "ERROR"]
    assert texts(logs.read(sources, errors)) == wanted
    assert texts(logs.read(sources, errors, newest_first=True)) == wanted[::-1]


HUGE = 192 << 20


def test_the_tail_of_a_log_with_a_line_of_hundreds_of_megabytes_takes_a_few(tmp_path: Path) -> None:
    """User code can write what it likes into the folder of its logs."""
    put(tmp_path, "1.1.1", 0, 0, (1, "before"))
    log = RunDir(tmp_path / "runs" / "1.1.1").attempt(0).log(0)
    with open(log, "r+b") as file:
        file.seek(HUGE)
        file.write(b"\n")
    put(tmp_path, "1.1.1", 0, 0, (2, "behind"))
    code = (
        f"sources = logs.sources(Home({str(tmp_path)!r}).find, ['1.1.1'])\n"
        "last = [line.text for line in logs.read(sources, Filter(), 1, newest_first=True)]\n"
        "assert last == ['behind'], last\n"
        "for newest_first in (True, False):\n"
        "    words = [line.text for look in logs.looks(sources, Filter(), 3, newest_first=newest_first) for line in look]\n"
        "    assert words[0] == ('behind' if newest_first else 'before') and 'is not shown' in words[1], words\n"
        "follower = Follower(lambda: sources, Filter())\n"
        "words = [line.text for look in follower.history() for line in look]\n"
        "while follower.behind: words += [line.text for line in follower.more()]\n"
        "assert words == ['before', 'behind'], words\n"
    )
    setup = (
        "from dethpc.rundir.home import Home; from dethpc.master.files import logs; from dethpc.master.files.logs import Filter\n"
        "from dethpc.master.files.log_follower import Follower"
    )
    assert megabytes_taken(setup, code) < 32


def test_a_filter_that_takes_nothing_gives_its_reader_a_chance_to_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MOST", 2000)  # bytes of a block
    put(tmp_path, "1.1.1", 0, 0, *((n, "x") for n in range(2000)))
    looks = list(logs.looks(logs.sources(Home(tmp_path).find, ["1.1.1"]), Filter(text="y")))
    assert len(looks) > 3 and not any(looks)
    some = logs.looks(logs.sources(Home(tmp_path).find, ["1.1.1"]), Filter(), 700)
    assert sum(map(len, some)) == 700


def test_filters(tmp_path: Path) -> None:
    put(tmp_path, "1.1.1", 0, 0, (1, "one"), (2, "two"))
    put(tmp_path, "1.1.1", 0, 1, (3, "bad"), level="ERROR")
    sources = logs.sources(Home(tmp_path).find, ["1.1.1"])

    def found(**conditions: object) -> list[str]:
        return texts(logs.read(sources, Filter(**conditions)))  # type: ignore[arg-type]

    assert found(levels=frozenset({"ERROR"})) == ["bad"]
    assert found(ranks=frozenset({0})) == ["one", "two"]
    assert found(text="w") == ["two"]
    assert found(after=T0 + 1, before=T0 + 3) == ["two"]
    assert found(attempts=frozenset({"1.1.1.0"})) == ["one", "two", "bad"]
    assert found(nodes=frozenset({"elsewhere"})) == []


def test_the_lines_of_a_single_process_are_those_of_rank_0(tmp_path: Path) -> None:
    for run, slots in (("1.1.1", 1), ("1.1.2", 0), ("1.1.3", 2)):
        put(tmp_path, run, 0, 0, (1, run), rank=None)
        write_json(RunDir(tmp_path / "runs" / run).spec, {"slots": slots})
    sources = logs.sources(Home(tmp_path).find, ["1.1.1", "1.1.2", "1.1.3"])
    assert texts(logs.read(sources, Filter(ranks=frozenset({0})))) == ["1.1.1", "1.1.2"]
    assert texts(logs.read(sources, Filter(ranks=frozenset({1})))) == []
    assert {line.rank for line in logs.read(sources, Filter())} == {None}


def test_lines_of_slurm_are_followed_once_over_a_requeue_and_keep_their_times(tmp_path: Path) -> None:
    def write(text: str, at: float) -> None:
        with open(run.log, "a") as file:
            file.write(text)
        os.utime(run.log, (T0 + at, T0 + at))

    put(tmp_path, "1.1.1", 0, 0, (1, "a"))
    run = RunDir(tmp_path / "runs" / "1.1.1")
    write("prologue\n", 1)
    follower = Follower(lambda: logs.sources(Home(tmp_path).find, ["1.1.1"]), Filter())
    first = [line for look in follower.history() for line in look]
    assert texts(first) == ["a", "prologue"]
    write("requeued\n", 5)
    put(tmp_path, "1.1.1", 1, 0, (6, "b"))
    later = follower.more()
    write("prologue again\n", 7)
    later += follower.more()
    assert texts(later) == ["requeued", "b", "prologue again"]
    lines = list(logs.read(logs.sources(Home(tmp_path).find, ["1.1.1"]), Filter()))
    assert [(line.id, line.at) for line in lines] == [(line.id, line.at) for line in [*first, *later]]
    assert [line.at - T0 for line in lines] == [1, 1, 5, 6, 7]


def test_a_line_of_slurm_that_is_read_before_its_length_is_seen_keeps_its_time(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "runs" / "1.1.1")
    run.make()
    run.log.write_text("one\n")
    os.utime(run.log, (T0, T0))
    sources = logs.sources(Home(tmp_path).find, ["1.1.1"])
    run.log.write_text("one\ntwo\n")
    assert [line.at for line in logs.read(sources, Filter())] == [T0, T0]
    run.log.write_text("one\ntwo\nthree\n")
    os.utime(run.log, (T0 + 9, T0 + 9))
    lines = list(logs.read(logs.sources(Home(tmp_path).find, ["1.1.1"]), Filter(), newest_first=True))
    assert [line.at - T0 for line in lines] == [9, 0, 0]


def test_a_follower_finds_later_lines_nodes_attempts_and_runs_once(tmp_path: Path) -> None:
    runs = ["1.1.1"]
    put(tmp_path, "1.1.1", 0, 0, (1, "a"), torn="2025-11-13T02:13:22.000Z\tINFO\t0\tstd")
    follower = Follower(lambda: logs.sources(Home(tmp_path).find, runs), Filter())
    assert [line.text for look in follower.history() for line in look] == ["a"]
    assert follower.more() == []
    with open(RunDir(tmp_path / "runs" / "1.1.1").attempt(0).log(0), "a") as file:
        file.write("out\tb\n")
    assert follower.grown()
    put(tmp_path, "1.1.1", 0, 1, (1.5, "from another node"))
    put(tmp_path, "1.1.1", 1, 0, (3, "c"))
    assert texts(follower.more()) == ["from another node", "b", "c"]
    assert not follower.grown()
    runs.append("1.1.2")
    put(tmp_path, "1.1.2", 0, 0, (4, "d"))
    assert texts(follower.more()) == ["d"]
    assert follower.more() == [] and not follower.behind


def test_a_follower_takes_much_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_follower, "READ", 100)
    follower = Follower(lambda: logs.sources(Home(tmp_path).find, ["1.1.1"]), Filter(text="9"))
    put(tmp_path, "1.1.1", 0, 0, *((i, str(i)) for i in range(20)))
    got = []
    while True:
        got += texts(follower.more())
        if not follower.behind:
            break
    assert got == ["9", "19"]


def test_a_name_that_only_looks_like_a_number_is_none(tmp_path: Path) -> None:
    """User code can make files and folders in the directory of its run."""
    put(tmp_path, "1.1.1", 0, 0, (1, "a"))
    run = RunDir(tmp_path / "runs" / "1.1.1")
    (run.path / "attempts" / "²").mkdir()
    (run.path / "waiting-³.log").touch()
    run.attempt(0).logs.joinpath("node-².log").touch()
    assert texts(logs.read(logs.sources(Home(tmp_path).find, ["1.1.1"]), Filter())) == ["a"]


def test_a_follower_puts_the_last_word_behind_a_long_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_follower, "READ", 100)
    follower = Follower(lambda: logs.sources(Home(tmp_path).find, ["1.1.1"]), Filter())
    put(tmp_path, "1.1.1", 0, 1, (-1, "started"), (50, "ended"))
    put(tmp_path, "1.1.1", 0, 0, *((i, str(i)) for i in range(20)))
    put(tmp_path, "1.1.1", 1, 0, (60, "next attempt"))
    got = texts(follower.more())
    while follower.behind:
        got += texts(follower.more())
    assert got == ["started", *map(str, range(20)), "ended", "next attempt"]
    assert follower.more() == []


def test_lines_of_a_node_are_followed_behind_that_of_its_start(tmp_path: Path) -> None:
    put(tmp_path, "1.1.1", 0, 0, (1, "a"))
    started = RunDir(tmp_path / "runs" / "1.1.1").attempt(0).started
    home = Home(tmp_path)
    ((source,),) = logs.sources(home.find, ["1.1.1"])
    assert not logs.precedes_its_start(source, home.find, -1)
    started.touch()
    assert logs.precedes_its_start(source, home.find, -1)
    assert not logs.precedes_its_start(source, home.find, 0)
    os.utime(started, (1.0, 1.0))  # no master reports it
    assert not logs.precedes_its_start(source, home.find, -1)
