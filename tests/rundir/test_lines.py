"""Lines come from either end, each once, and in bounded memory whatever the file is."""

from __future__ import annotations

import os
import re
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dethpc.rundir import lines
from tests.example_counts import examples
from tests.memory import megabytes_taken

HUGE = 256 << 20  # without an end of a line; larger ones take longer, and no more memory


def _last_first(path: Path) -> list[tuple[int, bytes]]:
    found = []
    for begin, block in lines.blocks_backward(path):
        at = begin + len(block)
        for text in reversed(lines.split(block)):
            at -= len(text)
            found.append((at, text))
    return found


@given(
    st.lists(
        st.one_of(st.binary(max_size=12), st.integers(1, 90).map(lambda n: b"x" * n), st.just(b"\n")), max_size=12
    ),
    st.integers(1, 9),
)
@settings(max_examples=examples(300), deadline=None)
def test_both_ends_give_the_lines_that_are_short_enough(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], block: int
) -> None:
    path = tmp_path_factory.mktemp("lines") / "log"
    data = b"".join(pieces)
    path.write_bytes(data)
    found, offset = [], 0
    for text in re.findall(rb"[^\n]*\n", data):
        if len(text) <= 20:
            found.append((offset, text))
        offset += len(text)
    with mock.patch.object(lines, "MOST", 20), mock.patch.object(lines, "_BLOCK", block):
        assert [line for line in lines.forward(path) if line[1]] == found
        assert _last_first(path) == found[::-1]
        begin = found[1][0] if len(found) > 1 else 0
        later = [(at, block) for at, block in lines.blocks(path, begin) if block]
        assert b"".join(block for _, block in later) == b"".join(line for at, line in found if at >= begin)
        assert all(data[at : at + len(block)] == block for at, block in later)


@pytest.mark.slow
def test_a_line_of_hundreds_of_megabytes_is_passed_over_in_a_few(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"first\n")
    with open(path, "r+b") as file:
        file.seek(HUGE)
        file.write(b"\nlast\n")
    code = (
        f"forwards = [line for line in lines.forward({str(path)!r}) if line[1]]\n"
        f"backwards = [line for line in lines.blocks_backward({str(path)!r}) if line[1]]\n"
        f"assert forwards == backwards[::-1] == [(0, b'first\\n'), ({HUGE + 1}, b'last\\n')], (forwards, backwards)"
    )
    assert megabytes_taken("from dethpc.rundir import lines", code) < 16


@pytest.mark.parametrize("read", [lines.forward, lines.blocks_backward])
def test_a_pipe_is_no_file_of_lines(tmp_path: Path, read: object) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no regular file"):
        list(read(tmp_path / "pipe"))  # type: ignore[operator]
    assert list(read(tmp_path / "absent")) == []  # type: ignore[operator]
