"""Curves: what is fetched, how it is smoothed and thinned, and what stands on the terminal, in a pipe, in a file."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import math
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from dethpc.cli.commands import curves
from dethpc.cli.commands.chart import Axis, Line, chart, sparkline
from tests.cli.conftest import trial
from tests.waiting import LONG_ENOUGH


def curve(values: list[float]) -> curves.Curve:
    points = [curves.Point(i, None, float(i), "", value) for i, value in enumerate(values)]
    return curves.Curve(1, 1, "training", "loss", points)


def series(number: int, values: list[Any], group: str = "validation", metric: str = "loss") -> dict[str, Any]:
    data = [
        {"batches": 10 * i, "time": f"2026-11-20T10:{i:02d}:00Z", "epoch": float(i), "values": {metric: value}}
        for i, value in enumerate(values, 1)
    ]
    summary = {"validation_metrics": {"loss": {}}, "avg_metrics": {"train_loss": {}}}
    about = trial(number, summaryMetrics=summary)
    return {"trial": about, "metrics": [{"group": group, "type": "", "data": data}]}


# --- the numbers


def test_smoothing_is_the_debiased_moving_average() -> None:
    assert curves.smoothed([3.0, 3.0, 3.0], 0.9) == pytest.approx([3.0, 3.0, 3.0])
    assert curves.smoothed([1.0, 2.0], 0.5) == pytest.approx([1.0, (0.25 + 1.0) / 0.75])
    one, odd, two = curves.smoothed([1.0, math.nan, 2.0], 0.5)
    assert (one, two) == pytest.approx((1.0, 1.25 / 0.75)) and math.isnan(odd)


def test_a_thinned_curve_keeps_its_ends_its_peak_and_its_first_nan() -> None:
    values = [0.0] * 100_000
    values[61_234], values[7] = 9.0, math.nan
    kept = curves.thinned(curve(values), 200)
    assert len(kept.drawable) <= 204 and max(point.value for point in kept.drawable) == 9.0
    assert (kept.drawable[0].steps, kept.drawable[-1].steps, kept.odd[0].steps) == (0, 99_999, 7)


def test_metrics_of_machines_are_below_their_names() -> None:
    assert dict(curves.numbers({"n1": {"gpu0": {"util": 5}, "free": "NaN"}, "name": "x", "on": True})).keys() == {
        "n1/gpu0/util",
        "n1/free",
    }


# --- the drawing


def drawn(points: list[tuple[float, float]], **options: Any) -> list[str]:
    return chart([Line("7", points, "red")], **{"width": 60, "height": 4, "x": Axis(), "y": Axis(), **options})


def test_a_chart_has_round_ticks_and_the_name_where_the_line_ends() -> None:
    assert drawn([(0, 0.0), (100, 1.0)], ascii_only=True) == [
        "  1 |                                ********** 7",
        "0.5 |                     ***********",
        "    |          ***********",
        "  0 |**********",
        "    +------------------------------------------",
        "     0                  50                   100",
    ]


@pytest.mark.parametrize(
    "points",
    [
        [(5.0, 0.25)],
        [(0.0, 1.0), (1.0, 1.0)],
        [(0.0, 1e300), (1.0, -1e300)],
        [(0.0, 1e-300), (1e9, 3e-300)],
        [(0.0, 0.0)],
        [(1.0, 1e15), (2.0, 1e15 + 1)],
    ],
)
@pytest.mark.parametrize("width", [40, 80])
def test_charts_fit_whatever_the_values(points: list[tuple[float, float]], width: int) -> None:
    lines = drawn(points, width=width)
    assert len(lines) == 6 and all(len(line) <= width for line in lines)
    assert "7" in "".join(lines) and ("●" in "".join(lines)) == (len(points) == 1)


def test_a_logarithmic_axis_has_decades() -> None:
    lines = drawn([(1, 1e-3), (1000, 10.0)], x=Axis(log=True), y=Axis(log=True), width=80, height=10)
    assert lines[-1].split() == ["1", "10", "100", "1000"]
    assert {"0.001", "0.1", "10"} <= {line.split()[0] for line in lines[:-1]}


def test_sparklines() -> None:
    assert sparkline([1.0, 2.0, math.nan, 8.0]) == "▁▂█"
    assert len(sparkline([float(i) for i in range(1000)], 12)) == 12
    assert (sparkline([]), sparkline([1.0]), sparkline([2.0, 2.0])) == ("", "", "▁▁")


# --- the commands


def test_trials_of_an_experiment_are_drawn_by_the_searchers_metric(det: Any, master: Any) -> None:
    master.series = [series(1, [3.0, 2.0, "NaN", 1.0]), series(2, [4.0, 4.0])]
    done = det("e", "plot", 1, "--best", 2, "--height", 5, master=master)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "loss (validation) over steps: experiment 1 (digits)" and max(map(len, lines)) <= 120
    assert [line.split() for line in lines[-3:]] == [
        ["Trial", "First", "Last", "Min", "Max"],
        ["1", "3", "1", "1", "3"],
        ["2", "4", "4", "4", "4"],
    ]
    assert "\x1b" not in done.stdout
    assert done.stderr == "trial 1: loss is NaN after 30 steps: such values are left out\n"
    asked = [query for _, path, query, _ in master.asked if path.endswith("time-series")]
    assert asked[0]["metricNames"] == ["loss"] and int(asked[0]["maxDatapoints"][0]) < 2000
    best = next(query for _, path, query, _ in master.asked if path == "/api/v1/experiments/1/trials")
    assert (best["sortBy"], best["limit"]) == (["SORT_BY_BEST_VALIDATION_METRIC"], ["2"])


def on_terminal(environment: dict[str, str], master: Any, *words: str, columns: int) -> str:
    """What ``det`` prints on a terminal."""
    env = {name: value for name, value in environment.items() if name not in ("COLUMNS", "NO_COLOR")}
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, "-m", "dethpc.cli", "-m", master.url, *words]
    env.update(TERM="xterm", PYTHONIOENCODING="utf-8")
    with subprocess.Popen(command, env=env, stdout=terminal, stdin=terminal) as process:
        os.close(terminal)
        text = b""
        try:
            while piece := os.read(main, 65536):
                text += piece
        except OSError:  # the other end is closed
            pass
        os.close(main)
        assert process.wait(LONG_ENOUGH) == 0
    return text.decode()


def test_a_terminal_gets_colours_and_its_own_width(environment: dict[str, str], master: Any) -> None:
    master.series = [series(1, [3.0, 2.0, 1.0]), series(2, [4.0, 4.0])]
    text = on_terminal(environment, master, "trial", "plot", "1,2", columns=50)
    assert "\x1b[36m" in text and "\x1b[33m" in text
    plain = re.sub(r"\x1b\[\d+m", "", text)
    chart = [line for line in plain.splitlines() if "│" in line or "└" in line]
    assert len(chart) == 17 and max(map(len, chart)) <= 50


@pytest.mark.parametrize("words", [("experiment", "list-trials", "1"), ("experiment", "describe", "1")])
def test_lists_of_trials_have_their_curves_on_a_terminal(
    environment: dict[str, str], det: Any, master: Any, words: tuple[str, ...]
) -> None:
    master.series = [series(1, [3.0, "NaN", 2.0, 1.0]), series(2, [])]
    text = on_terminal(environment, master, *words, columns=120)
    assert "Curve" in text and "█▅▁" in text
    assert "Curve" not in det(*words, master=master).stdout + det(*words, "--csv", master=master).stdout


def test_data_are_complete_in_csv_and_json(det: Any, master: Any) -> None:
    master.series = [series(1, [0.1 + 0.2, "Infinity"]), series(2, [])]
    rows = list(csv.DictReader(io.StringIO(det("t", "plot", 1, "--csv", "--smooth", 0.5, master=master).stdout)))
    assert rows[0] == {
        **{"experiment": "1", "trial": "1", "group": "validation", "metric": "loss", "steps": "10", "epoch": "1.0"},
        **{"seconds": "60.0", "time": "2026-11-20T10:01:00Z", "value": "0.30000000000000004"},
        "smoothed": "0.30000000000000004",
    }
    found = json.loads(det("e", "plot", 1, "--json", master=master).stdout)
    assert [point["value"] for point in found[0]["points"]] == [0.1 + 0.2, "Infinity"]
    assert all(q["maxDatapoints"] == ["0"] for _, path, q, _ in master.asked if path.endswith("time-series"))


def test_what_cannot_be_plotted_is_said(det: Any, master: Any) -> None:
    master.series = [series(1, [], metric="loss")]
    done = det("t", "plot", 1, "--metric", "los", master=master)
    assert done.returncode == 1 and done.stderr == (
        "det: error: trial 1: no number was reported as los. There are: train_loss (training); loss (validation). "
        "Choose with --metric and --group\n"
    )
    master.series[0]["trial"]["summaryMetrics"] = {}
    assert "nothing was reported yet" in det("t", "plot", 1, master=master).stderr
    master.series[0]["trial"]["endTime"] = "2026-03-01T12:00:00Z"
    assert "nothing was reported. A trial's log" in det("t", "plot", 1, master=master).stderr
    master.trials = []
    assert "no trial has started yet" in det("e", "plot", 1, master=master).stderr
    assert det("t", "plot", 1, "--smooth", 1, master=master).returncode == 2
    assert "nan is not a finite number" in det("t", "plot", 1, "--smooth", "nan", master=master).stderr


def test_a_picture_has_a_chart_for_each_metric(det: Any, master: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    both = series(1, [1.0, 2.0])
    both["metrics"] += series(1, [3.0], metric="精度 $\\no$ {$")[
        "metrics"
    ]  # no formula, and characters without a glyph
    master.series = [both]
    done = det("t", "plot", 1, "--metric", "*", "--png", "curves.svg", "--x", "epochs", master=master)
    assert (done.returncode, done.stdout, done.stderr) == (0, "curves.svg\n", "")
    assert "<svg" in (tmp_path / "curves.svg").read_text()
    refused = det("t", "plot", 1, "--png", "no/where.png", master=master)
    assert refused.returncode == 1 and "was not written" in refused.stderr


def test_a_whole_number_beyond_all_floats_is_read_as_an_infinity() -> None:
    found = dict(curves.numbers({"loss": 10**400, "other": {"x": -(10**400)}, "large": 2**70, "fine": 0.5}))
    assert found == {"loss": math.inf, "other/x": -math.inf, "large": 2.0**70, "fine": 0.5}
