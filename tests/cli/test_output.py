from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dethpc.cli import output


def test_columns_in_a_pipe_can_be_counted() -> None:
    lines = output.aligned(["ID", "Name"], [["1", ""], ["12", "digits"]])
    assert lines == ["ID  Name", "1   -", "12  digits"]


def test_a_name_can_neither_break_a_line_nor_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(["Name"], [["a\nb\x1b[2Jc"]])
    assert capsys.readouterr().out == "Name\na\\nb\\x1b[2Jc\n"


def test_csv_quotes_what_must_be_quoted(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(["Name", "Value"], [["a,b", None]], as_csv=True)
    assert capsys.readouterr().out == 'Name,Value\n"a,b",\n'


@pytest.mark.parametrize(
    "value, text",
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (96 * 2**20, "96.0 MiB"), (5 * 2**40, "5.0 TiB")],
)
def test_sizes_are_read_by_people(value: int, text: str) -> None:
    assert output.size(value) == text


def test_times_are_local_iso_8601(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert output.when("2026-01-20T10:00:00.123456Z") == "2026-01-20T11:00:00+01:00"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_metrics_keep_six_digits_and_words() -> None:
    assert [output.number(v) for v in (0.123456789, "NaN", 3, None)] == ["0.123457", "NaN", "3", ""]


HOSTILE = "title\x1b]0;mine\x07 clipboard\x1b]52;c;aGk=\x07\x9b2J\rback\ttab"


@pytest.mark.parametrize("err", [False, True])
def test_a_terminal_gets_control_characters_spelled_out_and_a_pipe_as_they_are(
    monkeypatch: pytest.MonkeyPatch, err: bool
) -> None:
    terminal, pipe = io.StringIO(), io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    for stream in (terminal, pipe):
        monkeypatch.setattr(sys, "stderr" if err else "stdout", stream)
        output.echo(HOSTILE, err=err)
    assert pipe.getvalue() == HOSTILE + "\n"
    shown = terminal.getvalue()
    assert not set(shown) & set("\x1b\x07\x9b\r") and r"\x1b]52" in shown and "\ttab" in shown


def test_a_log_and_a_wait_reach_a_terminal_through_a_real_one(tmp_path: Path) -> None:
    """In a pseudo-terminal, as a person has it."""
    import pty

    code = f"from dethpc.cli import output; t = {HOSTILE!r}; output.echo(t); output.say(t); output.print_fields([('a', t)])"
    main, terminal = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", code], stdout=terminal, stderr=terminal) as child:
        os.close(terminal)
        got = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while piece := os.read(main, 4096):
                got += piece
    os.close(main)
    assert child.returncode == 0
    assert not re.search(rb"\x1b\]|\x07|\xc2\x9b", got) and got.count(rb"\x1b]52") == 3


def test_all_output_of_det_goes_through_one_place() -> None:
    folder = Path(output.__file__).parent
    users = {path.name for path in folder.glob("*.py") if re.search(r"click\.s?echo\(|\bprint\(", path.read_text())}
    assert users <= {"output.py", "completion.py", "doctor.py", "group.py"}  # own words, or escaped there
