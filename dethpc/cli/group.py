"""The click group that ``det`` is made of: aliases, commands imported on first use, suggestions, and one form for errors."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

import click

from dethpc import errors
from dethpc.cli import from_determined, output


class Settings(NamedTuple):
    """The options given before the noun."""

    master: Optional[str] = None
    user: Optional[str] = None


class Failed(click.ClickException):
    """The request failed: shown as ``det: error: ...``, each of ``messages`` on a line of its own; the exit code is 1."""

    exit_code = 1

    def __init__(self, messages: Sequence[str]) -> None:
        super().__init__("\n".join(messages))
        self.messages = messages

    def show(self, file: Any = None) -> None:
        for message in self.messages:
            first, *rest = message.splitlines() or ["unknown error"]
            for line in (f"det: error: {first}", *(f"    {line}" for line in rest)):
                output.say(line) if file is None else click.echo(line, file=file)


class NotHere(Failed):
    """A command or an option of Determined's that is not here; the message says what to do in its place."""

    exit_code = 2


class LazyGroup(click.Group):
    """A group with aliases whose ``lazy`` commands are imported when they are used. Each has ``help``.

    ``lazy`` maps a name to ("module:attribute", one line of help); ``aliases`` maps a short name to a full one.
    """

    group_class = type  # groups inside this one are LazyGroups too

    def __init__(
        self,
        *args: Any,
        lazy: Optional[Mapping[str, tuple[str, str]]] = None,
        aliases: Optional[Mapping[str, str]] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = dict(lazy or {})
        self.aliases = {"ls": "list", **(aliases or {})}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.lazy, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> Optional[click.Command]:
        name = self.aliases.get(cmd_name, cmd_name)
        if name in self.lazy:
            module, _, attribute = self.lazy[name][0].partition(":")
            command: click.Command = getattr(importlib.import_module(module), attribute)
            return command
        return show_help if name == "help" else self.commands.get(name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[Optional[str], Optional[click.Command], list[str]]:
        name = args[0]
        command = self.get_command(ctx, name)
        if command is None and not name.startswith("-"):
            if sentence := from_determined.instead([*_command_path(ctx), *args]):
                raise NotHere([sentence])
            import difflib

            names = self.list_commands(ctx)
            if ctx.parent is None and (nouns := self._nouns_with(ctx, name)):
                ctx.fail(f"No such command {name!r}. Did you mean {' or '.join(nouns)}?")
            close = difflib.get_close_matches(
                name, [*names, *(a for a, to in self.aliases.items() if to in names)], n=2
            )
            meant = f" Did you mean {' or '.join(map(repr, close))}?" if close else f" There are: {', '.join(names)}."
            ctx.fail(f"No such command {name!r}.{meant}")
        resolved = self.aliases.get(name, name)
        return super().resolve_command(ctx, [resolved, *args[1:]])

    def _nouns_with(self, ctx: click.Context, verb: str) -> list[str]:
        """``'det experiment logs'`` and further nouns that have this verb, the likeliest three."""
        commands = []
        for noun in self.list_commands(ctx):
            group = self.get_command(ctx, noun)
            if isinstance(group, LazyGroup) and (full := group.aliases.get(verb, verb)) in group.list_commands(ctx):
                commands.append(f"'{ctx.info_name} {noun} {full}'")
        return commands[:3]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        short = {full: alias for alias, full in reversed(self.aliases.items())}
        rows = []
        for name in self.list_commands(ctx):
            if name in self.lazy:
                line = self.lazy[name][1]
            else:
                command = self.commands[name]
                if command.hidden:
                    continue
                line = command.get_short_help_str(limit=80)
            rows.append((f"{name}, {short[name]}" if name in short else name, line))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            done = super().invoke(ctx)
            sys.stdout.flush()
            return done
        except BrokenPipeError:  # `| head` has what it wants: no failure of ours, nor of a script with pipefail
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise click.exceptions.Exit(0) from None
        except click.NoSuchOption as error:
            if sentence := from_determined.in_place_of(error.option_name, _command_path(error.ctx)):
                raise NotHere([sentence]) from None
            if error.option_name.lstrip("-").isdecimal():
                raise NotHere(
                    [f"{error.option_name} is read as an option: a negative number is not allowed here"]
                ) from None
            raise
        except errors.ConfigError as error:
            raise Failed([str(problem) for problem in error.problems]) from error
        except errors.DethpcError as error:
            from dethpc.cli import own_master

            advice = f"{_way_in(error, ctx.find_object(Settings))}\n{own_master.build_advice(error)}".rstrip()
            raise Failed([f"{str(error) or type(error).__name__}{advice}"]) from error
        except OSError as error:  # a disk that is full, a folder that is not ours, a storage that does not answer
            place = f"{error.filename}: " if error.filename else ""
            raise Failed([f"{place}{error.strerror or error}"]) from error
        except KeyboardInterrupt:
            output.echo(err=True)
            raise click.exceptions.Exit(130) from None


def _way_in(error: errors.DethpcError, settings: Optional[Settings]) -> str:
    """What to add to ``error`` where a login would have been missing: at one's own master, the token file is one."""
    if not settings or not settings.master or getattr(error, "status", 0) != 401 or "log in" in str(error):
        return ""
    return f"; log in with: det -m {settings.master} user login {settings.user or 'NAME'}"


def _command_path(ctx: Optional[click.Context]) -> list[str]:
    """The command that ``ctx`` is about, without ``det`` itself."""
    path: list[str] = []
    while ctx is not None and ctx.parent is not None:
        path.insert(0, ctx.info_name or "")
        ctx = ctx.parent
    return path


@click.command("help")
@click.argument("topic", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def show_help(ctx: click.Context, topic: tuple[str, ...]) -> None:
    """Show the help of a command, such as: det help experiment create."""
    about = ctx.parent or ctx
    for word in topic:
        group = about.command
        if not isinstance(group, click.Group):
            raise click.UsageError(f"{about.command_path} has no commands of its own: {about.command_path} -h", about)
        name, command, _ = group.resolve_command(about, [word])
        assert command is not None
        about = click.Context(command, info_name=name, parent=about)
    output.echo(about.get_help())
