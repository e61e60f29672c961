from __future__ import annotations

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
