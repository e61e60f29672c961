"""Log files are read by offset, merged by time, from either end, and followed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dethpc.master.runs import logs
from dethpc.master.runs.logs import Filter, Follower
from dethpc.rundir import logline
from dethpc.rundir.files import write_json
from dethpc.rundir.layout import RunDir

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
    attempt = RunDir(runs / run).attempt(k)
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
    write_json(RunDir(tmp_path / "1.1.1").attempt(0).started, {"nodes": ["alpha", "beta"]})
    sources = logs.sources(tmp_path, ["1.1.1", "1.1.2"])
    lines = list(logs.read(sources, Filter()))
    assert texts(lines) == ["a", "b", "c", "d", "e", "f"]
    assert [line.node for line in lines[:3]] == ["alpha", "beta", "alpha"]
    assert texts(logs.read(sources, Filter(), newest_first=True)) == ["f", "e", "d", "c", "b", "a"]
    assert texts(logs.read(sources, Filter(), 2, newest_first=True)) == ["f", "e"]


def test_ids_are_the_same_from_either_end_and_fit_in_63_bits(tmp_path: Path) -> None:
    put(tmp_path, "1.1.1", 0, 0, (1, "a"), (3, "c"))
    put(tmp_path, "1.1.2", 3, 7, (2, "b"))
    sources = logs.sources(tmp_path, ["1.1.1", "1.1.2"])
    forward = [line.id for line in logs.read(sources, Filter())]
    assert forward == [line.id for line in logs.read(sources, Filter(), newest_first=True)][::-1]
    assert len(set(forward)) == 3 and all(0 <= id < 2**63 for id in forward)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(st.text(alphabet="ab\u00e9 \r\t\x1b", max_size=9), max_size=12),
    torn=st.sampled_from(["", "2025-11-13T02:13:20.000Z\tINFO\t0\tstd", "x"]),
    block=st.sampled_from([1, 3, 17, 64, 1 << 16]),
)
def test_backward_is_forward_reversed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], torn: str, block: int
) -> None:
    monkeypatch.setattr(logs, "_BLOCK", block)
    path = tmp_path / "log"
    path.write_bytes("".join(line + "\n" for line in lines).encode() + torn.encode())
    assert list(logs._backward(path)) == list(logs._forward(path, 0))[::-1]
    assert [raw for _, raw in logs._forward(path, 0)] == [f"{line}\n".encode() for line in lines]


def test_filters(tmp_path: Path) -> None:
    put(tmp_path, "1.1.1", 0, 0, (1, "one"), (2, "two"))
    put(tmp_path, "1.1.1", 0, 1, (3, "bad"), level="ERROR")
    sources = logs.sources(tmp_path, ["1.1.1"])

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
        write_json(RunDir(tmp_path / run).spec, {"slots": slots})
    sources = logs.sources(tmp_path, ["1.1.1", "1.1.2", "1.1.3"])
    assert texts(logs.read(sources, Filter(ranks=frozenset({0})))) == ["1.1.1", "1.1.2"]
    assert texts(logs.read(sources, Filter(ranks=frozenset({1})))) == []
    assert {line.rank for line in logs.read(sources, Filter())} == {None}


def test_a_follower_finds_later_lines_nodes_attempts_and_runs_once(tmp_path: Path) -> None:
    runs = ["1.1.1"]
    put(tmp_path, "1.1.1", 0, 0, (1, "a"), torn="2025-11-13T02:13:22.000Z\tINFO\t0\tstd")
    follower = Follower(lambda: logs.sources(tmp_path, runs), Filter())
    assert texts(follower.history()) == ["a"]
    assert follower.more() == []
    with open(RunDir(tmp_path / "1.1.1").attempt(0).log(0), "a") as file:
        file.write("out\tb\n")
    put(tmp_path, "1.1.1", 0, 1, (1.5, "from another node"))
    put(tmp_path, "1.1.1", 1, 0, (3, "c"))
    assert texts(follower.more()) == ["from another node", "b", "c"]
    runs.append("1.1.2")
    put(tmp_path, "1.1.2", 0, 0, (4, "d"))
    assert texts(follower.more()) == ["d"]
    assert follower.more() == [] and not follower.behind


def test_a_follower_takes_much_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_READ", 100)
    follower = Follower(lambda: logs.sources(tmp_path, ["1.1.1"]), Filter(text="9"))
    put(tmp_path, "1.1.1", 0, 0, *((i, str(i)) for i in range(20)))
    got = []
    while True:
        got += texts(follower.more())
        if not follower.behind:
            break
    assert got == ["9", "19"]


def test_the_masters_log_by_offset(tmp_path: Path) -> None:
    path = tmp_path / "master.log"
    assert logs.master_log(path) == ([], 0, 0)
    path.write_text("2025-11-13 02:13:20,123 INFO dethpc.master: up\nTraceback\n2025-11-13T02:13:21Z ERROR x\n")
    entries, count, end = logs.master_log(path)
    assert [(entry.id, entry.level) for entry in entries] == [(1, "INFO"), (2, "UNSPECIFIED"), (3, "ERROR")]
    assert entries[2].timestamp == "2025-11-13T02:13:21.000Z"
    assert [entry.id for entry in logs.master_log(path, -1)[0]] == [3]
    assert [entry.id for entry in logs.master_log(path, 1, 1)[0]] == [2]
    with path.open("a") as file:
        file.write("more\nhalf")
    entries, count, end = logs.master_log_after(path, count, end)
    assert [(entry.id, entry.message) for entry in entries] == [(4, "more")]
    path.write_text("anew\n")
    assert [entry.id for entry in logs.master_log_after(path, count, end)[0]] == [1]
