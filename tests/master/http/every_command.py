"""Runs commands of the published ``det``, each in a process of its own, and reports what became of them.

Runs in the published client's environment. The first line that it prints has the words of every command; after that, it answers
each line of its input, ``{"words": [...], "input": "..."}``, with one of its own. One import serves all of them.
"""

import argparse
import json
import os
import sys
import tempfile
from typing import Any, Iterator

from determined.cli import _declarative_argparse as declarative
from determined.cli import cli
from determined.deploy import cli as deploy


def leaves(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command, by its first spelling; commands of ``help`` only show options."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups and words[-1] != "help":
        yield " ".join(words)
    for group in groups:
        first = {id(inner): name for name, inner in reversed(list(group.choices.items()))}
        for name, inner in group.choices.items():
            if first[id(inner)] == name:
                yield from leaves(inner, (*words, name))


def commands() -> list[str]:
    every: list[str] = []
    for described in (cli.all_args_description, [deploy.args_description]):
        parser = cli.make_parser()
        declarative.add_args(parser, described)
        every += leaves(parser)
    return list(dict.fromkeys(every))


def outcome(words: list[str], text: str) -> dict[str, Any]:
    with (
        tempfile.TemporaryFile("w+") as stdin,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        stdin.write(text)
        stdin.seek(0)
        pid = os.fork()
        if not pid:
            _become(words, stdin.fileno(), out.fileno(), err.fileno())
        _, status = os.waitpid(pid, 0)
        out.seek(0)
        err.seek(0)
        return {"exit": os.waitstatus_to_exitcode(status), "out": out.read(), "err": err.read()}


def _become(words: list[str], *files: int) -> None:
    """The command itself. Without a terminal, so that passwords are read from standard input."""
    code: Any = 1
    try:
        os.setsid()
        for number, file in enumerate(files):
            os.dup2(file, number)
        sys.argv = ["det", *words]
        cli.main(words)
        code = 0
    except SystemExit as end:
        code = end.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1 if code else 0)


def main() -> None:
    print(json.dumps(commands()), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(outcome(request["words"], request["input"])), flush=True)


main()
