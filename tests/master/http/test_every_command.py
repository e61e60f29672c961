"""Every command of the published ``det`` in one session with a master that runs jobs: ``commands.yaml`` says what each prints."""

from __future__ import annotations

import datetime
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.master.conftest import Published
from tests.waiting import LONG_ENOUGH, wait_until

HERE = Path(__file__).parent
SESSION: list[dict[str, Any]] = yaml.safe_load((HERE / "commands.yaml").read_text())

UNUSED = {
    "deploy": "starts and stops clusters on clouds and in Docker; it never asks a master",
}
"""Commands that the session leaves out, by their first word, with the reason."""

SEARCH = """
name: digits
entrypoint: python3 train.py
searcher: {name: random, metric: loss, max_trials: 2}
hyperparameters: {lr: {type: double, minval: 0.001, maxval: 0.1}, steps: 2}
checkpoint_storage: {save_trial_latest: 2}
"""
FILES = {
    "search.yaml": SEARCH,
    "long.yaml": SEARCH.replace("name: random", "name: single")
    .replace(", max_trials: 2", "")
    .replace("steps: 2", "steps: 9999"),
    "longer.yaml": "max_restarts: 1\n",
    "template.yaml": "max_restarts: 0\n",
    "policies.yaml": "constraints: {priority_limit: 50}\n",
    "task.yaml": "entrypoint: sleep 600\nresources: {slots: 1}\n",
    "project/train.py": """
import time
import determined as det

with det.core.init() as core:
    hparams = det.get_cluster_info().trial.hparams
    for step in range(1, hparams["steps"] + 1):
        core.train.report_training_metrics(steps_completed=step, metrics={"loss": 1.0 / step})
        if hparams["steps"] > 2:
            time.sleep(0.1)
            if core.preempt.should_preempt():
                raise SystemExit(0)
        else:
            with core.checkpoint.store_path({"steps_completed": step}) as (path, uuid):
                (path / "weights").write_text("w")
    core.train.report_validation_metrics(steps_completed=step, metrics={"loss": hparams["lr"]})
print("trained to the end")
""",
}


class Outcome(NamedTuple):
    """Of a command: what it printed, and its exit code."""

    exit: int
    out: str
    err: str

    def tables(self) -> list[str]:
        """The headers of its tables that have a row, each as one line."""
        lines = self.out.splitlines()
        return [
            " | ".join(cell.strip() for cell in lines[n - 1].split("|"))
            for n, line in enumerate(lines)
            if n and "-" in line and re.fullmatch(r"[-+]+", line.strip()) and "".join(lines[n + 1 : n + 2]).strip()
        ]

    def problem(self, entry: dict[str, Any]) -> str:
        """What differs from its entry in the session; "" if nothing does."""
        text, columns = self.out + self.err, entry.get("columns", [])
        if self.exit != entry.get("exit", 0):
            return f"exit code {self.exit}"
        if "Traceback" in text:
            return "traceback"
        if self.tables() != ([columns] if isinstance(columns, str) else columns):
            return f"columns: {self.tables()}"
        if bool(text.strip()) is entry.get("silent", False):
            return "prints nothing" if not text.strip() else "is not silent"
        if not re.search(entry.get("prints", ""), text):
            return f"does not print {entry['prints']}"
        return ""


class Commands:
    """The published ``det``. ``names`` stand for parts of what commands have printed."""

    def __init__(self, published: Published) -> None:
        self.process = subprocess.Popen(
            [published.venv / "bin" / "python", "-W", "ignore", HERE / "every_command.py"],
            cwd=published.folder,
            env={**published.env, "BROWSER": "true", "DET_DEBUG": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.names = {
            "certificate": published.env["DET_MASTER_CERT_FILE"],
            "today": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}",
        }
        self.every: list[str] = self._reply()

    def _reply(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def run(self, entry: dict[str, Any]) -> Outcome:
        line = re.sub("<([a-z]+)>", lambda match: self.names.get(match[1], match[0]), entry["det"])
        assert self.process.stdin is not None
        request = {"words": shlex.split(line), "input": entry.get("input", "")}
        self.process.stdin.write(f"{json.dumps(request)}\n")
        self.process.stdin.flush()
        return Outcome(**self._reply())

    def problem(self, entry: dict[str, Any]) -> str:
        """What differs from an entry of the session, after its command has run."""
        outcome = self.run(entry)
        if until := entry.get("until"):
            outcome = wait_until(lambda: again if re.search(until, (again := self.run(entry)).out) else None)
        for name, pattern in entry.get("as", {}).items():
            match = re.search(pattern, outcome.out)
            if match is None:
                return f"det {entry['det']}: no {name} in {outcome}"
            self.names[name] = match[1]
        problem = outcome.problem(entry)
        return f"det {entry['det']}: {problem}\n{outcome.out}\n{outcome.err}" if problem else ""


@pytest.fixture
def commands(running: Published) -> Iterator[Commands]:
    for name, text in FILES.items():
        path = running.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    commands = Commands(running)
    try:
        yield commands
    finally:
        commands.process.communicate(timeout=LONG_ENOUGH)


def test_every_command_ends_as_it_should_and_prints_its_columns(commands: Commands) -> None:
    lines = [f"{entry['det']} " for entry in SESSION]
    missing = [
        command
        for command in commands.every
        if command.split()[0] not in UNUSED and not any(line.startswith(f"{command} ") for line in lines)
    ]
    assert not missing, missing
    assert len(commands.every) == 198
    problems = [problem for entry in SESSION if (problem := commands.problem(entry))]
    assert not problems, "\n\n".join(problems)
