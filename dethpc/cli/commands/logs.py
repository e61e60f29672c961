"""``det experiment logs`` and ``det trial logs``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

import click

from dethpc import errors
from dethpc.cli import output
from dethpc.cli.arguments import ID, TRIALS
from dethpc.cli.connect import connect, reconnect

if TYPE_CHECKING:
    from dethpc.client.nouns.logs import Filter, Log, Tail

_LEVELS = ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]


def _moment(context: click.Context, parameter: click.Parameter, text: Optional[str]) -> Optional[str]:
    """``10m`` ago, or the time itself, as the wire has it. Raises BadParameter."""
    import datetime
    import re

    from dethpc.domain.text.times import moment

    if text is None:
        return None
    now = datetime.datetime.now(datetime.timezone.utc)
    if ago := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip()):
        seconds = float(ago[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}[ago[2]]
        return (now - datetime.timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
    try:
        at = moment(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no time; write 10m, 2h, 1d or 2026-01-31T12:00:00Z") from None
    return at.astimezone(datetime.timezone.utc).isoformat().replace("+00:00", "Z")


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        [
            click.option("-f", "--follow", is_flag=True, help="Follow the log until the end."),
            click.option("--head", type=click.IntRange(1), metavar="N", help="Only the first N lines."),
            click.option(
                "--tail", type=click.IntRange(1), metavar="N", help="Only the last N lines; with -f, those first."
            ),
            click.option(
                "--rank", "--rank-id", "ranks", type=int, multiple=True, help="Only lines of this rank (repeatable)."
            ),
            click.option(
                "--level",
                type=click.Choice([*_LEVELS, "WARN"], case_sensitive=False),
                metavar="LEVEL",
                help=f"Only this level and above: {', '.join(_LEVELS)}.",
            ),
            click.option("--agent-id", "--node", "nodes", multiple=True, help="Only lines of this node (repeatable)."),
            click.option(
                "--stdtype",
                "stdtypes",
                type=click.Choice(["stdout", "stderr"]),
                multiple=True,
                help="Only this stream.",
            ),
            click.option(
                "--source", "sources", multiple=True, help="Only lines from here: task or slurm (repeatable)."
            ),
            click.option("--search", metavar="TEXT", help="Only lines that contain this text."),
            click.option(
                "--since",
                "--timestamp-after",
                "after",
                metavar="TIME",
                callback=_moment,
                help="Only lines after that time: 10m, 2h, 1d, or RFC 3339.",
            ),
            click.option(
                "--until",
                "--timestamp-before",
                "before",
                metavar="TIME",
                callback=_moment,
                help="Only lines before that time, likewise.",
            ),
            click.option("--utc", is_flag=True, help="Times in UTC, not in local time, on a terminal."),
            click.option(
                "--raw",
                is_flag=True,
                help="Full lines on a terminal, as in a pipe, and every state of a progress bar instead of the last.",
            ),
            output.as_json,
        ]
    ):
        command = option(command)
    return command


class Options(NamedTuple):
    """The options of a command that prints a log. ``which``: the fields of a ``logs.Filter``, without the level."""

    follow: bool = False
    head: Optional[int] = None
    tail: Optional[int] = None
    as_json: bool = False
    utc: bool = False
    raw: bool = False
    level: Optional[str] = None
    which: Mapping[str, Any] = MappingProxyType({})

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """From the parameters of a click command."""
        own = {name: value for name, value in given.items() if name in cls._fields}
        return cls(**own, which={name: value for name, value in given.items() if name not in own})

    @property
    def all_states(self) -> bool:
        """Whether every state of a progress bar is printed, not only its last."""
        return self.raw or self.as_json

    def filter(self) -> Filter:
        from dethpc.client.nouns import logs

        return logs.Filter(level=logs.level_of(self.level), **self.which)


@click.command("logs")
@ID
@click.option(
    "-a", "--all", "every", is_flag=True, help="The logs of all trials in order of time, each line with its trial."
)
@log_options
def experiment_logs(experiment_id: int, every: bool, **options: Any) -> None:
    """Show the log of an experiment's first trial, or of all, as --search does. Other trials: det trial logs."""
    session = connect()
    if every or options["search"]:
        _show_all(session, experiment_id, Options.of(options))
        return
    trial = first_trial(session, experiment_id, wait=options["follow"])
    if trial is None:
        raise errors.NotFound(f"experiment {experiment_id} has no trial yet; wait for it with -f")
    show(trial, Options.of(options), session=session)


@click.command("logs")
@TRIALS
@log_options
def trial_logs(ids: list[int], **given: Any) -> None:
    """Show the log of a trial, or the logs of several in order of time, each line with its trial."""
    from dethpc.client.nouns import logs, trials

    options = Options.of(given)
    if len(ids) == 1:
        show(ids[0], options)
        return

    def which(session: Any) -> tuple[dict[int, bool], bool]:
        return {number: trials.get(session, number)["state"] in logs.ENDED for number in ids}, True

    again = f"the trials continue. To watch again: det trial logs -f {','.join(map(str, ids))}"
    _show_together(connect(), which, again, options)
    if options.follow:
        session = connect()
        _exit_like([(f"trial {number}", trials.get(session, number)) for number in ids])


def _show_all(session: Any, experiment_id: int, options: Options) -> None:
    from dethpc.client.nouns import experiments, logs

    def which(session: Any) -> tuple[dict[int, bool], bool]:
        over = experiments.get(session, experiment_id)["experiment"]["state"] in logs.ENDED
        return {int(t["id"]): t["state"] in logs.ENDED for t in experiments.trials(session, experiment_id)}, over

    again = f"the experiment continues. To watch again: det experiment logs --all -f {experiment_id}"
    _show_together(session, which, again, options)
    if options.follow:
        experiment = experiments.get(connect(), experiment_id)["experiment"]
        _exit_like([(f"experiment {experiment_id}", experiment)])


def first_trial(session: Any, experiment_id: int, *, wait: bool) -> Optional[int]:
    """The experiment's first trial. ``wait``: until there is one, or the experiment has ended without."""
    from dethpc.client.nouns import experiments

    reported = False
    while True:
        for trial in experiments.trials(session, experiment_id, limit=1):
            return int(trial["id"])
        state = output.state(experiments.get(session, experiment_id)["experiment"]["state"])
        if not wait or state in ("COMPLETED", "CANCELED", "ERROR", "DELETE_FAILED", "DELETED"):
            return None
        if not reported:
            output.say(f"Experiment {experiment_id} is {state}; waiting for its first trial ...")
            reported = True
        time.sleep(0.5)


def show(trial: int, options: Options, *, session: Any = None) -> None:
    """Print a trial's log. Interrupting only stops the watching. Followed to the trial's end, its state is the exit code:
    0 completed, 1 error, 3 canceled, as for ``wait``."""
    session = session or connect()
    again = f"the trial continues. To watch again: det trial logs -f {trial}"
    if _printed(_lines(session, trial, options), options, again) == 0:
        _say_why(session, trial)
    if options.follow:
        from dethpc.client.nouns import trials

        _exit_like([(f"trial {trial}", trials.get(reconnect(session)(), trial))])


def show_task(session: Any, task_id: str, options: Options) -> None:
    """Print the log of a task without a trial. Raises KeyboardInterrupt."""
    for line in _lines(session, task_id, options):
        _print(line, options, named=False, in_place=False)


def _lines(session: Any, log: Log, options: Options) -> Iterator[dict[str, Any]]:
    from dethpc.client.nouns import logs

    last, which = _last(options), options.filter()
    if options.follow:
        return logs.follow(reconnect(session), log, which, tail=last)
    return _shown(lambda count: logs.read(session, log, which, head=options.head, tail=count), last, options.all_states)


def _show_together(
    session: Any,
    trials: Callable[[Any], tuple[dict[int, bool], bool]],
    again: str,
    options: Options,
) -> None:
    """Print the lines of several trials, each with its trial. ``again``: the hint that is printed after an interrupt."""
    from dethpc.client.nouns import logs

    last, which = _last(options), options.filter()
    if options.follow:
        lines = logs.follow_together(reconnect(session), trials, which, tail=last)
    else:
        endings = trials(session)[0]
        lines = _shown(
            lambda n: logs.of_trials(session, endings, which, head=options.head, tail=n), last, options.all_states
        )
    if _printed(lines, options, again, named=True) == 0:
        output.say("No such lines in any of the trials")


_READ_FOR_ONE = 20  # lines for one of the last that are shown, where most may be states of a progress bar


def _last(options: Options) -> Optional[Tail]:
    """The lines that --tail requests. Only the last state of a progress bar counts, unless all are shown."""
    from dethpc.client.nouns.logs import Tail

    tail = options.tail
    if options.head is not None and (options.follow or tail is not None):
        raise click.UsageError("--head shows the beginning of a log: leave out --follow and --tail.")
    if tail is None:
        return None
    if options.all_states:
        return Tail(tail, lambda lines: lines[-tail:])
    return Tail(tail * _READ_FOR_ONE, lambda lines: list(_without_steps(iter(lines)))[-tail:])


def _shown(
    read: Callable[[Optional[int]], Iterator[dict[str, Any]]], last: Optional[Tail], every: bool
) -> Iterator[dict[str, Any]]:
    """The lines that ``read`` has, all or the ``last``; of a progress bar's states the last one, unless it is to be ``every``
    one."""
    if last is not None:
        return iter(last.pick(list(read(last.lines))))
    return read(None) if every else _without_steps(read(None))


def _without_steps(lines: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Without those states of a progress bar that its next one, by the same writer, has replaced before anything else came."""
    held: Optional[dict[str, Any]] = None
    for line in lines:
        if held is not None and not _replaces(held, line):
            yield held
        held = line if _is_bar(line) else None
        if held is None:
            yield line
    if held is not None:
        yield held


_BARS = "|".join(
    [
        r"\d+%\|.*\|\s*\S+/\S+ \[",  # tqdm
        r"^(?:.*: )?\d+(?:\.\d+)?\w* \[\d+:\d+(?::\d+)?, ",  # tqdm without a total
        r"^\s*\d+/\d+\s*[\[━─╸=>]",  # Keras
        r"[━╸╺]{5}.*(?:\d+%|\d+/\d+)",  # rich
    ]
)


def _is_bar(line: dict[str, Any]) -> bool:
    import re

    return re.search(_BARS, str(line.get("log") or "")) is not None


def _replaces(before: dict[str, Any], line: dict[str, Any]) -> bool:
    """Whether both are states of progress bars, by the same writer."""
    same = all(before.get(name) == line.get(name) for name in ("trialId", "agentId", "rankId", "stdtype"))
    return same and _is_bar(before) and _is_bar(line)


def _printed(lines: Iterable[dict[str, Any]], options: Options, again: str, *, named: bool = False) -> int:
    """Print the lines; returns their number. An interrupt only stops following: ``again`` says how to resume."""
    count = 0
    before: Optional[dict[str, Any]] = None
    try:
        for line in lines:
            count += 1
            _print(line, options, named=named, in_place=before is not None and _replaces(before, line))
            before = line if options.follow else None
    except KeyboardInterrupt:
        if not options.follow:
            raise
        output.say(f"\nStopped watching; {again}")
        raise click.exceptions.Exit(130) from None
    return count


def _print(line: dict[str, Any], options: Options, *, named: bool, in_place: bool) -> None:
    """``named``: with its trial. Followed on a terminal, a progress bar is drawn ``in_place`` of its previous state."""
    if options.as_json:
        import json

        output.echo(json.dumps(line, ensure_ascii=False))
    elif sys.stdout.isatty() and not options.raw and "log" in line:
        text = for_people(line, utc=options.utc, named=named)
        output.show_line(
            text, _STYLES.get(_level(line), {}), one_row=options.follow and _is_bar(line), in_place=in_place
        )
    else:
        message = (f"trial {line['trialId']} | " if named else "") + str(line.get("message", ""))
        output.echo(message, nl=not message.endswith("\n"))


_STYLES: dict[str, dict[str, Any]] = {
    "TRACE": {"dim": True},
    "DEBUG": {"dim": True},
    "WARNING": {"fg": "yellow"},
    "ERROR": {"fg": "red"},
    "CRITICAL": {"fg": "red", "bold": True},
}


def _level(line: dict[str, Any]) -> str:
    return str(line.get("level") or "").removeprefix("LOG_LEVEL_")


def for_people(line: dict[str, Any], *, utc: bool = False, named: bool = False) -> str:
    """``19:20:11 n0 rank 3 | text``, ``named`` with ``trial 7`` before the node; the level where it is another than INFO and the
    text does not begin with it."""
    import datetime

    from dethpc.domain.text.times import moment

    at = moment(str(line["timestamp"]))
    clock = (at.astimezone(datetime.timezone.utc) if utc else at.astimezone()).strftime("%H:%M:%S")
    who = [f"trial {line['trialId']}"] if named else []
    who += [str(line.get("agentId") or "")] + ([f"rank {line['rankId']}"] if line.get("rankId") is not None else [])
    level, text = _level(line), str(line.get("log") or "").rstrip("\n")
    prefix = "" if level in ("", "INFO") or text.startswith(level) else f"{level}: "
    text = text.removeprefix("INFO: ")
    return f"{' '.join([clock, *filter(None, who)])} | {prefix}{text}"


def _exit_like(rows: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Say which of them failed or were canceled and why, and exit as ``wait`` does."""
    from dethpc.cli.describe import reason

    codes = set()
    for noun, about in rows:
        state = output.state(about.get("state"))
        code = {"ERROR": 1, "CANCELED": 3}.get(state, 0)
        if code:
            why = reason(about)
            output.say(f"{noun} is {state}{f': {why}' if why else ''}")
            codes.add(code)
    if codes:
        raise click.exceptions.Exit(min(codes))


def _say_why(session: Any, trial: int) -> None:
    """A trial that never started wrote nothing: its reason is told beside the log."""
    from dethpc.cli.describe import reason, waiting
    from dethpc.client.nouns import trials

    row = trials.get(session, trial)
    waits = None if row.get("endTime") else trials.waiting(session, trial)
    why = waiting(waits) if waits else reason(row)
    output.say(f"No such lines. Trial {trial} is {output.standing(row)}{f': {why}' if why else ''}")
