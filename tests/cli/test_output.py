from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from dethpc.cli import output, tables


def test_columns_in_a_pipe_can_be_counted() -> None:
    lines = tables.aligned(["ID", "Name"], [["1", ""], ["12", "digits"]])
    assert lines == ["ID  Name", "1   -", "12  digits"]


def test_a_name_can_neither_break_a_line_nor_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("", "determined"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DET_TABLES", form)
            tables.show(tables.plain(["N\x1b[31m\u202e"], [["a\nb\x1b[2Jc"]]))
        heading, *_, row = capsys.readouterr().out.splitlines()
        assert (heading.strip(), row.strip()) == ("N\\x1b[31m\\u202e", "a\\nb\\x1b[2Jc")


def test_without_a_terminal_a_password_is_a_line_of_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hush\nmore\n"))
    assert output.password("Password", twice=True) == "hush"
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(click.UsageError, match="Password: type it at a terminal, or send it"):
        output.password("Password")
    assert capsys.readouterr() == ("", "")


def test_a_very_long_cell_widens_no_other_line() -> None:
    assert tables.aligned(["Name", "ID"], [["x" * 300, "1"], ["ab", "2"]])[2] == "ab    2"


def test_rows_without_a_number_come_last_whichever_way_a_list_is_sorted() -> None:
    table = tables.plain(["Loss"], [[9.5], ["NaN"], [None], [10.0], ["Infinity"], [float("nan")], [-1]])
    assert [row[0] for row in tables.in_order(table, "loss")][:4] == [-1, 9.5, 10.0, "Infinity"]
    assert [row[0] for row in tables.in_order(table, "-loss")][:4] == ["Infinity", 10.0, 9.5, -1]


def test_csv_quotes_what_must_be_quoted(capsys: pytest.CaptureFixture[str]) -> None:
    tables.show(tables.plain(["Name", "Value"], [["a,b", None]]), tables.Layout(as_csv=True))
    assert capsys.readouterr().out == 'Name,Value\n"a,b",\n'


def test_times_are_local_iso_8601(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert output.when("2026-01-20T10:00:00.123456Z") == "2026-01-20T11:00:00+01:00"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_metrics_keep_four_digits_for_people() -> None:
    assert [output.digits(v) for v in (0.123456789, "NaN", 12345, None)] == ["0.1235", "NaN", "12345", ""]
    assert [output.digits(v) for v in (12345.678, 1e12, 1e-5, -123456.7)] == ["12346", "1e+12", "1e-05", "-123457"]


def test_a_table_is_rounded_in_a_pipe_and_exact_as_csv_and_in_determineds_form(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = [tables.Column("Loss", "loss", tables.METRIC), tables.Column("Took", "took", tables.DURATION)]
    table = tables.Table(columns, [{"loss": 0.123456789, "took": 3725.5}])
    tables.show(table)
    assert capsys.readouterr().out.split() == ["Loss", "Took", "0.1235", output.duration(3725.5)]
    tables.show(table, tables.Layout(as_csv=True))
    assert capsys.readouterr().out == "Loss,Took\n0.123456789,3725.5\n"
    monkeypatch.setenv("DET_TABLES", "determined")
    tables.show(table)
    assert "0.123456789" in capsys.readouterr().out


@pytest.mark.parametrize(
    "seconds, said",
    [(0, "0s ago"), (59, "59s ago"), (60, "1m ago"), (7199, "119m ago"), (7200, "2h ago"), (172799, "47h ago")]
    + [(172800, "2d ago"), (91 * 86400, "2025-10-21"), (-300, "in 5m")],
)
def test_ages_have_one_unit(monkeypatch: pytest.MonkeyPatch, seconds: int, said: str) -> None:
    monkeypatch.setattr(output, "now", lambda: 1768903200.0 + seconds)  # 2026-01-20T10:00:00Z
    assert output.ago("2026-01-20T10:00:00Z").replace("2026-01-20", "2025-10-21") == said


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
    users = {path.name for path in folder.rglob("*.py") if re.search(r"click\.s?echo\(|\bprint\(", path.read_text())}
    assert users <= {
        "output.py",
        "tables.py",
        "plot.py",
        "complete.py",
        "doctor.py",
        "group.py",
    }  # own words, or escaped there


def test_a_table_without_rows_says_so_on_a_terminal_and_has_its_heading_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tables.show(tables.plain(["Node", "State"], []))
    assert capsys.readouterr().out == "Node  State\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    tables.show(tables.plain(["Node", "State"], []))
    assert "none" in (drawn := capsys.readouterr().out) and "Node" not in drawn
