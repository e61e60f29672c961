"""Screens, letter for letter: lists on terminals of 80, 100 and 160 columns and in a pipe, with a fixed clock.

``DETHPC_DRAW_SCREENS=1 pytest tests/cli/test_screens.py`` draws the files in ``screens/`` anew; read the difference.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import click
import pytest
from click.testing import CliRunner

from dethpc import errors
from dethpc.cli import arguments, main, output, tables
from dethpc.cli.commands import logs, wait
from dethpc.cli.group import Failed
from dethpc.doctor.finding import Finding, Level, ok
from tests.cli.conftest import trial

SCREENS = Path(__file__).parent / "screens"
FOUR_HUNDRED_SECONDS_LATER = 1795169200.0  # than 2026-11-20T10:00:00Z

CUDA = {"type": "TYPE_CUDA", "brand": "NVIDIA H100 80GB HBM3"}
VALUES = [("tanh", 0.19, 112, 0.019557973661340232), ("relu", 0.0393, 107, 0.00223), ("relu", 0.263, 22, 1e-5)]


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def _point(number: int, value: float) -> dict[str, Any]:
    at = f"2026-11-20T10:{number:02d}:00Z"
    return {"batches": 10 * number, "time": at, "epoch": None, "values": {"validation_accuracy": value}}


def _log(number: int) -> list[dict[str, Any]]:
    said = [("INFO", f"epoch {n}: loss {1 / (n + number):.4f}") for n in (1, 2)] + [
        ("WARNING", "the loss grows: " + "9" * 70)
    ]
    return [
        {
            "id": str(n),
            "trialId": number,
            "timestamp": (at := f"2026-11-20T10:0{n}:0{number}.250000Z"),
            "level": f"LOG_LEVEL_{level}",
            "agentId": f"n{number}",
            "rankId": None if n else 0,
            "log": f"{level}: {text}",
            "message": f"[{at}] n{number} || {level}: {text}\n",
        }
        for n, (level, text) in enumerate(said)
    ]


def _checkpoint(number: int, state: str, reason: str = "") -> dict[str, Any]:
    return {
        "uuid": f"0d714127-3c1f-4b5e-9d2a-00000000000{number}",
        "state": f"STATE_{state}",
        "reason": reason,
        "reportTime": f"2026-11-20T10:0{number}:00Z",
        "metadata": {"steps_completed": 100 * number},
        "resources": {"model.pt": str(number * 1_500_000), "code/": "0"},
        "training": {"trialId": number, "searcherMetric": 0.9 + number / 30},
    }


# What more commands ask a master for.
MORE: dict[str, Any] = {
    "/api/v1/users": {
        "users": [
            {"id": 1, "username": "ada", "displayName": "Ada, Countess of Lovelace", "active": True, "admin": True},
            {"id": 2, "username": "a-service-with-a-name-of-forty-letters-ab", "active": True, "admin": False},
        ]
    },
    "/api/v1/tokens": {
        "tokenInfo": [
            {
                "id": number,
                "userId": 1,
                "description": what,
                "createdAt": "2026-11-01T10:00:00Z",
                "expiry": "2026-12-01T10:00:00Z",
                "revoked": number == 2,
            }
            for number, what in ((1, "the nightly job that copies the best checkpoints to the archive"), (2, ""))
        ]
    },
    "/api/v1/master/config": {
        "config": {
            "scheduler": "slurm",
            "home": "/home/ada/.dethpc",
            "site_file": "/etc/dethpc/site.yaml",
            "pools": {f"pool-of-a-long-name-{n}": {} for n in range(5)},
        }
    },
    "/api/v1/experiments/1/goodput": {
        "total": (
            hours := {"allocated": 3.6e6, "useful": 2e6, "lost": 6e5, "overhead": 1e6, "waiting": 0, "goodput": 0.55}
        ),
        "trials": [{"trialId": n, **hours} for n in (1, 2)],
        "pagination": {"endIndex": 2, "total": 2},
    },
    "/api/v1/workspaces": {
        "workspaces": [{"id": 1, "name": "Uncategorized"}],
        "pagination": {"endIndex": 1, "total": 1},
    },
    "/api/v1/commands": {
        "commands": [
            {
                "id": f"{n}ca7e3b8-a0de-4b62-8b08-d8a3c1f3d1e4",
                "description": "Command (python3 prepare.py --of everything)",
                "workspaceId": 1,
                "username": "ada",
                "state": "STATE_RUNNING",
                "startTime": f"2026-11-20T10:0{n}:00Z",
                "exitStatus": "",
                "resourcePool": "gpu",
                "slots": n,
                "job": f"4{n}",
            }
            for n in (1, 2)
        ],
        "pagination": {"endIndex": 2, "total": 2},
    },
    "/api/v1/resource-pools/goodput": {
        "pools": [{"resourcePool": name, **hours} for name in ("gpu", "a-pool-with-a-name-of-forty-letters-abcdef")]
    },
    "/api/v1/resource-pools": {
        "resourcePools": [
            {
                "name": name,
                "slotType": "TYPE_CUDA",
                "numAgents": 128,
                "slotsAvailable": 1024,
                "slotsUsed": 1000,
                "schedulerType": "SCHEDULER_TYPE_SLURM",
                "queueOrder": "fair_share",
                "defaultComputePool": name == "gpu",
                "description": "everything with eight cards, but for what the chemists have bought, until March",
            }
            for name in ("gpu", "a-pool-with-a-name-of-forty-letters-abcdef")
        ]
    },
    "/api/v1/agents": {
        "agents": [
            {
                "id": f"gpu-node-{n:03d}",
                "slots": {
                    f"{k:03d}": {"id": f"{k:03d}", "device": CUDA, "container": {"id": f"{'xyz'[k]}@"}}
                    for k in range(3 - n)
                },
                "resourcePools": ["gpu", "a-pool-with-a-name-of-forty-letters-abcdef"],
                "state": "mixed+drain",
                "reason": "the fan of card 3 is loud: ticket 4711" if n else "",
                "uses": [
                    {"trialId": 7, "experimentId": 2, "allocationId": "x"},
                    {"trialId": 8, "experimentId": 2, "allocationId": "y"},
                ],
                "otherJobs": n,
            }
            for n in (0, 1)
        ]
    },
}


@pytest.fixture
def screen(master: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Prints a command of ``det`` on a terminal of so many columns; 0: in a pipe."""
    searched = {name: {"type": "double"} for name in ("activation", "dropout", "hidden", "learning_rate")}
    master.config.update(hyperparameters={**searched, "batch_size": {"type": "const", "val": 64}})
    master.config["searcher"].update(name="adaptive_asha", metric="validation_accuracy", smaller_is_better=False)
    master.experiment.update(
        name="digits-asha-with-a-name-that-no-list-has-room-for",
        bestTrialId=2,
        bestTrialSearcherMetric=0.988889,
        searcherMetric="validation_accuracy",
        duration=325,
    )
    reasons = [
        "trained to the full length, epochs 16: x",
        "",
        "rung 1 (epochs 4): validation_accuracy 0.9622 did not reach",
    ]
    master.trials = [
        trial(
            number,
            metric=0.9 + number / 22.5,
            reason=reason,
            wallClockTime=45.2,
            hparams=dict(zip(searched, values)) | {"batch_size": 64},
        )
        for number, (values, reason) in enumerate(zip(VALUES, reasons), 1)
    ]
    attempt = {"jobId": "27", "startTime": "2026-11-20T10:00:00Z", "endTime": "2026-11-20T10:02:05Z", "nodes": ["n0"]}
    crash = "exit code 1: KeyError: 'learning_rate' at train.py:31"
    master.attempts = [
        {**attempt, "fromSteps": 0, "toSteps": 60, "end": "USER_ERROR", "reason": crash},
        {
            **attempt,
            "startTime": None,
            "endTime": None,
            "fromSteps": 0,
            "toSteps": None,
            "end": "",
            "reason": "",
            "nodes": [],
        },
        {**attempt, "jobId": "29", "endTime": None, "fromSteps": 50, "toSteps": 100, "end": "", "reason": ""},
    ]
    master.series = [
        {
            "trial": one,
            "metrics": [{"group": "validation", "type": "", "data": [_point(i, v) for i, v in enumerate(curve, 1)]}],
        }
        for one, curve in zip(master.trials, ([0.1, 0.5, 0.9], [0.9, 0.2, 0.98], []))
    ]
    master.checkpoints = [
        _checkpoint(1, "COMPLETED"),
        _checkpoint(2, "COMPLETED"),
        _checkpoint(3, "ERROR", "its file model.pt is damaged"),
    ]
    answers = master.answer

    def answered(method: str, path: str, query: Any, body: Any) -> Any:
        if path.startswith("/api/v1/checkpoints/"):
            return {"checkpoint": master.checkpoints[0]}
        return MORE.get(path) or answers(method, path, query, body)

    master.answer = answered
    for name in ("NO_COLOR", "DET_TABLES", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"DET_MASTER": master.url, "TZ": "UTC", "TERM": "xterm", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    time.tzset()
    monkeypatch.setattr(output, "now", lambda: FOUR_HUNDRED_SECONDS_LATER)

    def shown(columns: int, *words: str) -> str:
        out = Terminal() if columns else io.StringIO()
        monkeypatch.setenv("COLUMNS", str(columns or 80))
        monkeypatch.setattr(sys, "stdout", out)
        try:
            main.main(list(words), prog_name="det", standalone_mode=False)
        finally:
            monkeypatch.setattr(sys, "stdout", sys.__stdout__)
        return click.unstyle(out.getvalue())

    yield shown
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    "words",
    [
        "experiment list",
        "experiment list-trials 1",
        "experiment describe 1",
        "experiment logs --all 1",
        "experiment plot 1 --height 6",
        "trial describe 1",
        "trial plot 1,2 --height 6 --smooth 0.5",
        "checkpoint list 1",
        "checkpoint describe 0d714127-3c1f-4b5e-9d2a-000000000001",
        "job list --why",
        "command list",
        "agent list",
        "slot list",
        "resource-pool list",
        "resource-pool goodput",
        "experiment goodput 1",
        "user list",
        "token list",
        "master info",
        "slurm 28",
    ],
)
def test_a_screen_is_as_it_was_drawn(screen: Callable[..., str], master: Any, words: str) -> None:
    parts = []
    for columns in (80, 100, 160, 0):
        master.logs = [_log(number) for number in (1, 2, 3)] + [[]]
        said = screen(columns, *words.split())
        assert columns == 0 or "logs" in words or max(map(len, said.splitlines())) <= columns, (
            "no line is longer than the terminal is wide, but those that are the user's"
        )
        said = said.replace(master.url, "http://login1:8080")
        parts.append(f"$ det {words}    # {f'{columns} columns' if columns else 'in a pipe'}\n{said}")
    as_drawn(words, parts)


def test_a_terminal_counts_deleted_checkpoints_and_a_pipe_lists_them(screen: Callable[..., str], master: Any) -> None:
    master.checkpoints += [_checkpoint(number, "DELETED") for number in (4, 5)]
    command, uuid = ("experiment", "list-checkpoints", "1"), master.checkpoints[-1]["uuid"]
    assert "2 deleted ones are not shown" in (text := screen(100, *command)) and uuid not in text
    assert uuid in screen(100, *command, "--wide") and uuid in screen(0, *command)


FINDINGS = [
    ok("Slurm 22.05.8, cluster hpc1"),
    Finding(
        Level.WARNING,
        "KillWait is 30 s and the checkpoints of the last week took 41 s: a killed job loses what it did since the last",
        "dethpc asks trials to save 60 s before the time limit, so that what a killed job was at is on disk",
        "An administrator could set KillWait=90 in /etc/slurm/slurm.conf, for all jobs of the cluster",
        "kill_wait",
    ),
]
MISTAKES = [
    errors.Problem.of_value(
        "searcher.name",
        "'adaptive_ashaa'",
        f"one of {', '.join(f'method_{n}' for n in range(12))}",
        "did you mean 'adaptive_asha'?",
    ),
    errors.Problem.of_value("resources.resource_pool", "7", "text", "put it in quotes"),
]
for problem in MISTAKES:
    problem.file, problem.line = "typo.yaml", 4


@pytest.mark.parametrize("words", ["doctor", "experiment create typo.yaml"])
def test_findings_and_mistakes_wrap_on_a_terminal_and_are_one_line_each_in_a_pipe(
    screen: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DETHPC_HOME", str(tmp_path))
    monkeypatch.setattr("dethpc.doctor.read.read", lambda *_: None)
    monkeypatch.setattr("dethpc.doctor.examine", lambda _: FINDINGS)
    monkeypatch.setattr("dethpc.config.load", Mock(side_effect=errors.ConfigError(MISTAKES)))
    Path("typo.yaml").write_text("name: x")
    parts = []
    for columns in (80, 100, 160, 0):
        said = io.StringIO() if columns == 0 else Terminal()
        monkeypatch.setattr(sys, "stderr", said)
        try:
            text = screen(columns, *words.split())
        except Failed as error:
            error.show()
            text = said.getvalue()
        assert columns == 0 or max(map(len, text.splitlines())) <= columns
        parts.append(f"$ det {words}    # {f'{columns} columns' if columns else 'in a pipe'}\n{text}")
    as_drawn(words, parts)


def as_drawn(words: str, parts: list[str]) -> None:
    file, text = SCREENS / f"{words.replace(' ', '_')}.txt", "\n".join(parts)
    if os.environ.get("DETHPC_DRAW_SCREENS"):
        file.write_text(text)
    assert text == file.read_text()


def test_wait_is_as_it_was_drawn(
    screen: Callable[..., str], master: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look in the middle: the screen that moves is drawn by rich."""
    from rich.console import Console

    about = {**master.experiment, "estimatedEndTime": "2026-11-20T10:18:45Z", "heldSlots": 8}
    running = {**trial(4, "RUNNING", metric=0.91), "totalBatchesProcessed": 40}
    failed = trial(5, "ERROR", reason="exit code 1: KeyError: 'learning_rate' at train.py:31 (after 5 restarts)")
    parts = []
    for columns in (80, 100, 160):
        drawn = io.StringIO()
        Console(file=drawn, width=columns).print(wait._picture(about, [*master.trials, running, failed], 4))
        text = "".join(line.rstrip() + "\n" for line in drawn.getvalue().splitlines())
        parts.append(f"$ det experiment wait 1    # {columns} columns\n{text}")
    capsys.readouterr()
    wait._Lines()([(about, [*master.trials, running, failed])])
    parts.append(f"$ det experiment wait 1    # in a pipe\n{capsys.readouterr().out}")
    as_drawn("experiment wait 1", parts)


def test_a_long_path_stays_whole_where_words_are_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/shared/" + "x" * 90
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", "40")
    assert output.wrapped(f"the context is in {path} now", 4) == ["the context is in", f"    {path}", "    now"]


def test_a_progress_bar_that_is_followed_moves_in_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", drawn := Terminal())
    monkeypatch.setenv("COLUMNS", "40")

    def line(text: str, rank: int = 0) -> dict[str, Any]:
        at = "2026-11-20T10:00:00Z"
        return {"timestamp": at, "trialId": 1, "agentId": "n0", "rankId": rank, "log": text, "message": text}

    bars = [f"{percent}%|#####     | {percent}/100 [00:01<00:05, 9.00it/s]" for percent in (10, 20)]
    keras = "3/9 [==>...] loss: 1"
    told = [
        line(bars[0]),
        line(bars[1]),
        line(bars[0], rank=1),
        line("12it [00:03, 4.0it/s]", rank=1),
        line("end"),
        line(keras),
    ]
    options = logs.Options(follow=True, utc=True)
    assert logs._printed(iter(told), options, "") == 6
    above = "\x1b[A\x1b[2K"
    rows = drawn.getvalue().splitlines()
    assert [row.startswith(above) for row in rows] == [False, True, False, True, False, False]
    assert max(len(row.removeprefix(above)) for row in rows) == 39
    drawn.truncate(0)
    logs._printed(iter(told), options._replace(raw=True), "")
    assert above not in drawn.getvalue() and bars[0] in drawn.getvalue()


def test_wide_shows_every_column_and_columns_are_chosen_and_sorted(screen: Callable[..., str]) -> None:
    wide = screen(80, "trial", "list", "1", "--wide")
    assert "0.0196" in wide and "0.01955" not in wide and "trained to the full length" in wide and "batch_size" in wide
    chosen = screen(80, "e", "lt", "1", "--columns", "trial,hidden", "--sort", "-hidden").splitlines()
    assert [line.split() for line in chosen[:4]] == [["Trial", "hidden"], ["1", "112"], ["★", "2", "107"], ["3", "22"]]
    with pytest.raises(click.UsageError, match="there is no column 'colour'; there are: trial, state, "):
        screen(80, "e", "lt", "1", "--columns", "colour")
    assert "★" in screen(80, "e", "lt", "1", "--columns", "trial,validation_accuracy")  # as the terminal heads it


def test_any_table_can_be_had_in_determineds_form(screen: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_TABLES", "determined")
    head, rule, *rows = screen(80, "experiment", "list").splitlines()
    assert head.startswith("   ID | Owner   | Name ") and set(rule) == {"-", "+"} and len(rows) == 2


def test_a_name_takes_the_place_of_an_id_where_one_experiment_has_it(screen: Callable[..., str], master: Any) -> None:
    name = master.experiment["name"]
    candidates = rf"2 experiments are called .* give an id: 2 \({name}, \w+, created .*\), 1 \({name}, "
    with pytest.raises(click.UsageError, match=candidates):
        screen(80, "experiment", "describe", name)
    for near in (name.replace("asha", "assha"), "ASHA-with"):
        with pytest.raises(click.UsageError, match=rf"there is no experiment '{near}', but there are {name} \(id 2, "):
            screen(80, "experiment", "describe", near)
    with pytest.raises(click.UsageError, match="there is no experiment 'zebra', but .*Give a name or ids, such as 3"):
        screen(80, "experiment", "describe", "zebra")
    answer = master.answer
    master.answer = lambda method, path, query, body: (
        {"experiments": [master.experiment]} if path == "/api/v1/experiments" else answer(method, path, query, body)
    )
    assert name in screen(80, "experiment", "describe", name)


@pytest.mark.parametrize("words", ["e describe", "e plot", "t describe", "t kill", "t ls", "c list", "tkn revoke"])
def test_an_id_that_nothing_can_have_is_answered_before_a_master_is_asked(words: str) -> None:
    answer = CliRunner().invoke(main, ["-m", "http://127.0.0.1:1", *words.split(), "9" * 23])
    assert answer.exit_code == 2 and f"nothing has the id {'9' * 23}: ids are counted from 1" in answer.output


def test_filters_of_a_list_are_the_masters(screen: Callable[..., str], master: Any) -> None:
    screen(80, "e", "ls", "--state", "running", "--name", "digits", "--label", "a", "--label", "b")
    query = next(q for _, p, q, _ in master.asked if p == "/api/v1/experiments")
    assert (query["states"], query["name"], query["labels"]) == (["RUNNING"], ["digits"], ["a", "b"])
    with pytest.raises(click.BadParameter, match="'complete' is not a state; there are queued, .*completed"):
        screen(80, "e", "ls", "--state", "error,complete")


def test_trials_are_listed_by_state_whatever_they_are_sorted_by(screen: Callable[..., str], master: Any) -> None:
    for sort in ("id", "hidden"):
        screen(80, "t", "ls", "1", "--state", "running", "--state", "error", "--sort", sort)
        assert [q for _, p, q, _ in master.asked if p.endswith("/trials")][-1]["states"] == ["RUNNING", "ERROR"]


def test_describe_lists_the_ten_best_on_a_terminal_and_all_in_a_pipe(screen: Callable[..., str], master: Any) -> None:
    master.trials = [trial(n, metric=None if n == 3 else 1 / n) for n in range(13, 0, -1)]  # as the master sorts them
    master.config["searcher"]["smaller_is_better"] = True
    master.experiment["numTrials"] = 13
    shown = screen(100, "e", "describe", "1")
    (asked,) = [query for _, path, query, _ in master.asked if path.endswith("/trials")]
    assert (asked["limit"], asked["sortBy"], asked["orderBy"]) == (
        ["10"],
        ["SORT_BY_BEST_VALIDATION_METRIC"],
        ["ORDER_BY_ASC"],
    ), "it asks for what it shows"
    rows = shown[shown.index("Trial ") :].splitlines()[1:11]
    assert [int(row.replace("★", "").split()[0]) for row in rows] == list(range(13, 3, -1))
    assert "the 10 best; 3 more: det trial list 1" in shown
    piped = screen(0, "e", "describe", "1")
    assert "more: det" not in piped and len(piped[piped.index("Trial ") :].splitlines()) == 14


def test_a_list_is_watched_on_a_terminal_and_refused_in_a_pipe(
    screen: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(output, "redraw", drawn.append)
        patch.setattr(arguments.time, "sleep", pause)
        patch.setenv("LINES", "24")
        for words, seconds in (("e ls --watch", 2.0), ("t ls 1 --watch 7", 7.0)):
            assert screen(80, *words.split()) == ""
            assert pauses == [seconds] * 2
            pauses.clear()
        assert [click.unstyle(text) for text in drawn[:2]] == [screen(80, "e", "ls")] * 2
        patch.setenv("LINES", "4")
        screen(80, "e", "ls", "--watch")
        assert len(drawn[-1].splitlines()) == 3 and drawn[-1].endswith("more lines\n")
    with pytest.raises(click.UsageError, match="--watch draws on a terminal; in a pipe"):
        screen(0, "e", "ls", "--watch")
    with pytest.raises(click.UsageError, match="leave out --csv and --json"):
        screen(80, "e", "ls", "--watch", "--json")


def test_a_log_line_for_a_person_has_local_time_node_and_rank_and_its_level_once() -> None:
    line = {"timestamp": "2026-11-20T10:00:01.123Z", "level": "LOG_LEVEL_INFO", "agentId": "n0", "rankId": 3}
    assert logs.for_people({**line, "log": "INFO: hello"}, utc=True) == "10:00:01 n0 rank 3 | hello"
    said = {**line, "rankId": None, "level": "LOG_LEVEL_ERROR"}
    assert logs.for_people({**said, "log": "ERROR: no"}, utc=True) == "10:00:01 n0 | ERROR: no"
    assert logs.for_people({**said, "log": "no"}, utc=True) == "10:00:01 n0 | ERROR: no"


def test_long_text_and_headings_give_way_before_columns_do() -> None:
    columns = [tables.Column("ID", 0), tables.Column("Name", 1, least=8), tables.Column("Pool", 2, rank=1)]
    assert tables.fit(columns, [2, 4, 4], [3, 30, 5], [0, 1, 2], 30) == ([0, 1, 2], [3, 18, 5])
    assert tables.fit(columns, [2, 4, 4], [3, 30, 5], [0, 1, 2], 15) == ([0, 1], [3, 10, 5])
    assert tables.fit(columns, [2, 4, 4], [3, 30, 5], [0, 1, 2], None) == ([0, 1, 2], [3, 30, 5])
