"""A runner that gives canned answers in place of Slurm's commands, and counts the commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dethpc.scheduler.slurm.runner import Completed

Answer = Completed | Exception | Callable[[Sequence[str]], Completed]


@dataclass(frozen=True)
class Command:
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path | None
    timeout: float
    user: str | None


class Replay:
    """``answers``: by the command's name; a list is used up in turn. What has no answer says nothing and succeeds."""

    def __init__(self, **answers: Answer | list[Answer]) -> None:
        self.answers = answers
        self.commands: list[Command] = []

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path | None, timeout: float, user: str | None = None
    ) -> Completed:
        self.commands.append(Command(tuple(argv), env, cwd, timeout, user))
        answer = self.answers.get(argv[0], Completed(0))
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer(argv) if callable(answer) else answer

    @property
    def counts(self) -> Counter[str]:
        """How many times each command was run."""
        return Counter(command.argv[0] for command in self.commands)
