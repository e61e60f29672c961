"""The batch script of a run, rendered from the templates in ``templates/sbatch``.

Every value passes a filter: ``sh`` makes any text one word of bash; ``#SBATCH`` lines go through ``directive``, because sbatch
reads them with rules of its own. The local scheduler runs the same script with bash, without the srun.
"""

from __future__ import annotations

import functools
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dethpc.containers import Wrapped
from dethpc.domain.slurm.gres import requested
from dethpc.domain.slurm.warning_signal import LONGEST, WarningSignal
from dethpc.errors import ConfigError, GresError, Problem
from dethpc.scheduler.slurm.options import GPUS, NODES, TASKS, Option, Unreadable, Use, read

if TYPE_CHECKING:
    import jinja2

MARGIN = 60.0
"""Seconds before a time limit at which a trial is to have saved its checkpoint."""

_BUILT_IN = [Path(__file__).parents[2] / "templates" / name for name in ("sbatch", "tasks")]


@dataclass(frozen=True)
class Resources:
    """What is asked of Slurm. Fields that are None are left to the site's defaults, or to the user's own options."""

    nodes: int | None = 1
    ntasks_per_node: int | None = None  # None: one, of which user code is told nothing, as without the option
    cpus_per_task: int | None = None
    gres: str | None = None  # per node, e.g. "gpu:4" or "gpu:a100:4"
    mem: str | None = None  # per node, e.g. "32G"
    partition: str | None = None
    qos: str | None = None
    account: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    exclude: str | None = None  # names of nodes, with commas
    exclusive: bool = False  # whole nodes
    time: float | None = None  # seconds; Slurm counts whole minutes
    time_min: float | None = None  # the shortest time that will do, if the job starts sooner with it
    checkpoint: float = 0.0  # seconds that saving a checkpoint takes, as far as measured
    nice: int | None = None
    requeue: bool = True


@dataclass(frozen=True)
class ScriptInput:
    """All that a script is made from.

    ``env`` is exported as it is. ``prologue`` is shell code, such as ``module load cuda``. ``environment``: the file of the
    variables that the job runs with (``domain.environment``); None: those that it was submitted with. ``setup`` is shell code that
    comes after them. ``sbatch_args`` are the user's own options, one or more per line.
    ``self_requeue``: nobody looks after the run, so after a clean early stop it requeues itself.
    ``follow_within``: seconds that the job shall last; when its run is over sooner, it takes another one from the master.
    """

    job_name: str
    run_dir: Path
    harness: str
    python: str = "python3"
    resources: Resources = field(default_factory=Resources)
    sbatch_args: Sequence[str] = ()
    prologue: Sequence[str] = ()
    environment: Path | None = None
    setup: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    use_srun: bool = True
    self_requeue: bool = False
    follow_within: float | None = None
    wrapped: Wrapped | None = None  # what each task starts, in a container; None: the harness on the node as it is
    comment: str = ""  # for people who look at the job; the user's own in ``sbatch_args`` comes after it


def render(script: ScriptInput, template_dirs: Sequence[Path] = ()) -> str:
    """The script's text. ``template_dirs`` are searched before the built-in templates.

    Raises ConfigError: a value that no directive line can hold, a name that is no environment variable's, an option of
    ``sbatch_args`` that dethpc sets itself.
    """
    template = templates(tuple(template_dirs)).get_template("trial.sbatch.j2")
    options, asked_signal = _without_signal(options_of(script.sbatch_args))
    gres = _with_others(script.resources.gres, options)
    resources = replace(script.resources, gres=gres)
    return template.render(
        directives=[*_directives(script, resources, asked_signal), *_user_directives(options, gres is not None)],
        asked_signal=asked_signal,
        run_dir=str(script.run_dir),
        harness=script.harness,
        python=script.python,
        prologue=list(script.prologue),
        environment=script.environment,
        setup=list(script.setup),
        env=_variables(script.env),
        checkpoint=math.ceil(script.resources.checkpoint),
        margin=math.ceil(MARGIN),
        use_srun=script.use_srun,
        wrapped=script.wrapped,
        task_env=_variables(script.wrapped.env) if script.wrapped else {},
        self_requeue=script.self_requeue,
        claims_itself=not (script.use_srun or script.wrapped or script.self_requeue or script.follow_within),
        follow_within=None if script.follow_within is None else math.ceil(script.follow_within),
    )


@functools.cache
def built_in() -> Mapping[str, str]:
    """The texts of the built-in templates. A master reads them when it starts: an upgrade may replace the files while it runs, and
    the new ones fit only the new code."""
    return {path.name: path.read_text() for folder in _BUILT_IN for path in folder.glob("*.j2")}


@functools.lru_cache(maxsize=4)
def templates(folders: tuple[Path, ...]) -> jinja2.Environment:
    """Compiled templates, those in ``folders``, whose files are read again when they change, before the built-in ones."""
    import jinja2  # 3 MB that a master needs once it submits

    environment = jinja2.Environment(  # nosec B701  # bash: see the filter sh
        loader=jinja2.ChoiceLoader([jinja2.FileSystemLoader(folders), jinja2.DictLoader(built_in())]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["sh"] = sh
    environment.filters["word"] = word
    return environment


def sh(value: object) -> str:
    """``value`` as one word of bash, on one line: control characters are spelled as escapes."""
    text = str(value)
    if "\0" in text:
        raise ConfigError([Problem("environment", f"{text!r} contains a NUL character")])
    if not _CONTROL.search(text):
        return shlex.quote(text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + _CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}", escaped) + "'"


def word(value: object) -> str:
    """``value`` as one word of bash, which may take several lines: shell code stays readable."""
    text = str(value)
    if "\0" in text:
        raise ConfigError([Problem("environment", f"{text!r} contains a NUL character")])
    return shlex.quote(text)


def directive(name: str, value: object = None) -> str:
    """``--name=value`` as sbatch's reader of ``#SBATCH`` lines takes it. Raises ConfigError when it cannot be said there."""
    return f"--{name}" if value is None else f"--{name}={_word(name, str(value))}"


_CONTROL = re.compile(r"[\x01-\x1f\x7f]")
_PLAIN = re.compile(r"[\w@%+=:,./\[\]*^|&-]*\Z")


def _word(name: str, text: str) -> str:
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise ConfigError([Problem(name, f"{text!r} must be on one line, without control characters")])
    if _PLAIN.match(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _with_others(gres: str | None, options: Sequence[Option]) -> str | None:
    """dethpc's GPUs and the other GRES of the user's own ``--gres``: sbatch takes the last one alone."""
    given = [option.value or "" for option in options if option.name == "gres"]
    if gres is None or not given:
        return gres
    try:
        others = requested(given[-1])
    except GresError as error:
        raise ConfigError(
            [Problem("slurm.sbatch_args", f"sbatch would not take --gres={given[-1]}: {error}")]
        ) from None
    return ",".join([gres, *map(str, others)])


def _without_signal(options: Sequence[Option]) -> tuple[list[Option], WarningSignal | None]:
    """``options`` without ``--signal``, and what the last one asks for: Slurm sends one signal per job, which is dethpc's, and
    dethpc sends the user's. Raises ConfigError."""
    given = [option.value or "" for option in options if option.name == "signal"]
    try:
        warning = WarningSignal.parse(given[-1]) if given else None
    except ValueError as error:
        raise ConfigError([Problem.of_value("slurm.sbatch_args", f"--signal={given[-1]}", str(error))]) from None
    return [option for option in options if option.name != "signal"], warning


def _directives(script: ScriptInput, resources: Resources, warning: WarningSignal | None) -> Iterator[str]:
    yield directive("job-name", script.job_name)
    if script.comment:
        yield directive("comment", script.comment)
    yield directive("output", literal_path(script.run_dir / "slurm.log"))
    yield directive("open-mode", "append")
    yield directive("requeue" if resources.requeue else "no-requeue")
    where = ("partition", "qos", "account", "constraint", "reservation", "exclude")
    for name in ("nodes", "ntasks_per_node", "cpus_per_task", "gres", "mem", *where, "nice"):
        value = getattr(resources, name)
        if value is not None:
            yield directive(name.replace("_", "-"), value)
    if resources.exclusive:
        yield directive("exclusive")
    if resources.time is not None:
        yield directive("time", math.ceil(resources.time / 60))
    if resources.time_min is not None:
        yield directive("time-min", math.ceil(resources.time_min / 60))
    overlaps = "R" if warning is not None and warning.reservation else ""
    yield directive("signal", f"{overlaps}B:USR1@{min(LONGEST, math.ceil(resources.checkpoint + MARGIN))}")


def literal_path(path: Path) -> str:
    """sbatch replaces ``%j`` and the like in file names; a backslash anywhere would switch that off and vanish."""
    text = str(path)
    if "\\" in text:
        raise ConfigError(
            [Problem("output", f"the path of the run directory, {text!r}, has a backslash, which sbatch cannot take")]
        )
    return text.replace("%", "%%")


def _variables(env: Mapping[str, str]) -> dict[str, str]:
    bad = [name for name in env if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)]
    if bad:
        allowed = "a name of letters, digits and _ that does not start with a digit"
        raise ConfigError([Problem.of_value("environment_variables", repr(name), allowed) for name in bad])
    return dict(env)


# --- options of the user's own ----------------------------------------------------------------------------------------


def options_of(lines: Sequence[str]) -> list[Option]:
    """The options for sbatch in ``sbatch_args``; those that dethpc does by its own means are left out. Raises ConfigError."""
    return [option for option in all_options(lines) if option.use is not Use.TRANSLATED or option.name == "partition"]


def all_options(lines: Sequence[str]) -> list[Option]:
    """As ``options_of``, and those that dethpc does by its own means. Raises ConfigError."""
    problems: list[Problem] = []
    options: list[Option] = []
    for line in lines:
        try:
            argv = shlex.split(line.removeprefix("#SBATCH"))
            if not argv:
                raise Unreadable("no option")
            options += read(argv)
        except (Unreadable, ValueError) as error:
            problems.append(Problem("slurm.sbatch_args", f"sbatch would not take {line!r}: {error}"))
    for option in options:
        if option.use is Use.REFUSED:
            problems.append(Problem("slurm.sbatch_args", f"{option} is not possible here: {option.why}"))
    if problems:
        raise ConfigError(problems)
    return options


def check_pools(lines: Sequence[str], pool: str) -> None:
    """Options that a site gives to every job of a pool: none that dethpc or the trial chooses. Raises ConfigError."""
    field_name = f"pools.{pool}.sbatch_args"
    try:
        options = [option for line in lines for option in read(shlex.split(line.removeprefix("#SBATCH")))]
    except (Unreadable, ValueError) as error:
        raise ConfigError([Problem(field_name, f"sbatch would not take it: {error}")]) from None
    of_trials = NODES | TASKS | GPUS
    problems = [
        Problem(field_name, f"{option} is not possible here: {option.why or 'it follows from what a trial asks for'}")
        for option in options
        if (option.use in (Use.REFUSED, Use.TRANSLATED) and option.name != "partition") or option.name in of_trials
    ]
    if problems:
        raise ConfigError(problems)


def _user_directives(options: Sequence[Option], merged: bool) -> Iterator[str]:
    """``merged``: the GRES stand on dethpc's own line."""
    for option in options:
        if not (merged and option.name == "gres"):
            yield directive(option.name, option.value)
