"""What a search of logs finds is what reading every line finds."""

from __future__ import annotations

import heapq
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dethpc.config.patterns import Pattern
from dethpc.domain.ids import AttemptId
from dethpc.master.files import logs
from dethpc.master.files.log_follower import Follower
from dethpc.master.files.logs import BatchOutput, Filter, Line, Source
from dethpc.rundir import lines, logline

T0 = 1_763_000_000
WORDS = ["a", "loss", "ERROR", "\t3\tstd", "é", "\ufffd", "Z\tINFO\t", "x y", "0", "\r", "2025-11-13T02:13:20.000Z\t"]
PATTERNS = [
    *("l?o+s", "^loss$", r"^\S+$", "[^a]$", "é|x", "a|^l", ".{5,}"),
    *(r"\Bs\b", r"\bloss", r"\s", "", r"\s*$", "(?i)LOSS$", "(?-m)s$"),
    *("(?i:LOSS|A)", r"\AERROR", r"s\z", "^^a", r"\^a|l", "[[^]", r"[\^]|s"),
    *(r"\W", "\ufffd", r"[^\x00-\x7f]", r"\Qs^\E|l", "\n|s"),
]

text = st.lists(st.sampled_from(WORDS), max_size=4).map("".join)
level = st.sampled_from(["INFO", "ERROR", "DEBUG"])
stdtype = st.sampled_from(["stdout", "stderr"])
rank = st.none() | st.integers(0, 3)
second = st.floats(T0, T0 + 90)
said = st.builds(logline.LogLine, second, level, rank, stdtype, text).map(lambda line: logline.format(line).encode())
damaged = st.sampled_from(
    [
        b"\n",
        b"torn\n",
        b"2025-11-13T02:13:20.000Z\tINFO\t0\tstd\n",
        b"2025-11-13T02:13:60.500Z\tERROR\t007\tstdout\ta leap second\n",
        b"2025-11-13T02:13:62.500Z\tERROR\t0\tstdout\tloss\n",
        b"2025-13-13T02:13:20.000Z\tINFO\t-\tstdout\tloss\n",
        b"2025-11-13T02:13:21.000Z\tINFO\t03\tstderr\t\xe9 \xff loss \xc3\n",
        b"2025-11-13T02:13:40.000Z\tINFO\t0\tstdout\t" + b"loss" * 60 + b"\n",
        b"x" * 500 + b"\n",
    ]
)
content = st.lists(said | damaged, max_size=30).map(b"".join)
torn = st.sampled_from([b"", b"2025-11-13T02:13:20.000Z\tINFO\t0\tstdout\tloss"])


def some(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.frozensets(values, max_size=2)


filters = st.builds(
    Filter,
    levels=some(level),
    ranks=some(st.sampled_from([logs.NO_RANK, 0, 3, 7])),
    nodes=some(st.sampled_from(["n0", "n1"])),
    stdtypes=some(stdtype),
    sources=some(st.sampled_from(["task", "slurm"])),
    attempts=some(st.just("1.1.1.0")),
    text=st.none() | text | st.sampled_from(PATTERNS).map(Pattern),
    after=st.none() | second,
    before=st.none() | second,
)


def every_line(source: Source) -> list[Line]:
    """Read and parsed one by one."""
    found, at = [], 0
    for raw in source.path.read_bytes().split(b"\n")[:-1]:
        raw += b"\n"
        if len(raw) <= lines.MOST:
            try:
                found.append(source.parse(at, raw))
            except ValueError:
                pass
        at += len(raw)
    return found


@given(st.lists(content, min_size=1, max_size=2), torn, content, filters, st.sampled_from([1, 30, 300]))
@settings(max_examples=150, deadline=None)
def test_a_search_from_either_end_finds_the_lines_that_reading_all_finds(
    tmp_path_factory: pytest.TempPathFactory,
    nodes: list[bytes],
    end: bytes,
    batch: bytes,
    wanted: Filter,
    block: int,
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    attempt = AttemptId("1.1.1", 0)
    sources: list[Source] = []
    for n, data in enumerate(nodes):
        sources.append(Source(folder / str(n), attempt, 1, n, f"n{n}", len(nodes) == 1))
        sources[-1].path.write_bytes(data + end)
    growth = logs.Growth()
    growth.look(len(batch), T0 + 30.0)
    sources.append(BatchOutput(folder / "batch", attempt, 1, 9, "slurm", False, growth))
    sources[-1].path.write_bytes(batch)
    with mock.patch.multiple(lines, MOST=200, _BLOCK=block):
        slow = [list(filter(wanted, every_line(source))) for source in sources]
        forward = list(heapq.merge(*slow, key=lambda line: line.at))
        backward = list(heapq.merge(*(found[::-1] for found in slow), key=lambda line: line.at, reverse=True))
        assert list(logs.read([sources], wanted)) == forward
        assert list(logs.read([sources], wanted, newest_first=True)) == backward
        assert [line for look in logs.looks([sources], wanted, 3) for line in look] == forward[:3]
        follower = Follower(lambda: [sources], wanted)
        assert [line for look in follower.history() for line in look] == forward
        assert follower.more() == []


def test_an_expression_finds_in_a_block_what_it_finds_in_each_line(tmp_path: Path) -> None:
    texts = [
        "",
        "a",
        "loss",
        "ERROR",
        "a loss",
        "lossa",
        "s",
        "Ls^",
        "é",
        "\ufffd",
        " loss ",
        "x" * 9,
        "LOSS",
        "^a",
        "l\\n",
    ]
    source = Source(tmp_path / "log", AttemptId("1.1.1", 0), 1, 0, "n0", True)
    written = [logline.LogLine(T0, "INFO", 0, "stdout", text) for text in [*texts, *texts]]
    source.path.write_text("".join(map(logline.format, written)))
    for pattern in PATTERNS:
        wanted = Filter(text=Pattern(pattern))
        assert list(logs.read([[source]], wanted)) == list(filter(wanted, every_line(source))), pattern
