from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dethpc.rundir import logline
from dethpc.rundir.logline import LogLine, read_lines
from tests.example_counts import examples

text = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\n"))
lines = st.builds(
    LogLine,
    at=st.integers(0, 4 * 10**12).map(lambda ms: ms / 1000),
    level=st.sampled_from(logline.LEVELS),
    rank=st.none() | st.integers(0, 9999),
    stdtype=st.sampled_from(["stdout", "stderr"]),
    text=text,
)


@given(lines)
def test_a_line_comes_back_as_it_was(line: LogLine) -> None:
    back = logline.parse(logline.format(line))
    assert back._replace(at=line.at) == line
    assert back.at == pytest.approx(line.at, abs=0.0006)


@pytest.mark.parametrize(
    "bad", ["", "hello", "2020-01-01T00:00:00.000Z\tINFO", "2020-13-01T00:00:00.000Z\tI\t-\tstdout\tx"]
)
def test_other_text_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="not a log line"):
        logline.parse(bad)


@given(st.lists(lines, max_size=8))
@settings(max_examples=examples(60), deadline=None)
def test_following_by_pieces_gives_the_whole(tmp_path_factory: pytest.TempPathFactory, all_lines: list) -> None:
    path = tmp_path_factory.mktemp("log") / "node-0.log"
    path.write_bytes("".join(map(logline.format, all_lines)).encode())
    whole, end = read_lines(path)
    assert [line.text for line in whole] == [line.text for line in all_lines]
    assert end == path.stat().st_size
    assert read_lines(path, end) == ([], end)
    pieces, offset = [], 0
    for _ in all_lines:
        more, offset = read_lines(path, offset, limit=1)
        pieces += more
    assert pieces == whole


def test_a_partial_last_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "node-0.log"
    first = logline.format(LogLine(1.0, "INFO", None, "stdout", "whole"))
    second = logline.format(LogLine(2.0, "ERROR", 3, "stderr", "in the making"))
    path.write_text(first + second[:30])
    got, offset = read_lines(path)
    assert [line.text for line in got] == ["whole"]
    path.write_text(first + second)
    got, offset = read_lines(path, offset)
    assert got == [LogLine(2.0, "ERROR", 3, "stderr", "in the making")]
    assert offset == path.stat().st_size


def test_damaged_lines_and_bytes_that_are_not_utf8_do_not_stop_reading(tmp_path: Path) -> None:
    path = tmp_path / "node-0.log"
    good = logline.format(LogLine(1.0, "INFO", 0, "stdout", "x")).encode()
    path.write_bytes(b"\x00\x00torn\n" + good.replace(b"x", b"\xff\xfe") + good)
    got, _ = read_lines(path)
    assert [line.text for line in got] == ["\ufffd\ufffd", "x"]


def test_no_file_is_no_line(tmp_path: Path) -> None:
    assert read_lines(tmp_path / "none") == ([], 0)
