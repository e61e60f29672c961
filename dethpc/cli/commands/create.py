"""``det experiment create``."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, Union

import click

from dethpc import errors
from dethpc.cli import interpreter, output, tables
from dethpc.cli.arguments import PROJECT
from dethpc.cli.connect import connect
from dethpc.cli.nouns.tunnel import PortPair, forwarded
from dethpc.cli.output import Json

if TYPE_CHECKING:
    from dethpc.config import Loaded
    from dethpc.config.source import Source

_WARNINGS = {
    "LAUNCH_WARNING_CURRENT_SLOTS_EXCEEDED": "a trial wants more slots than its resource pool has now; it will wait",
}
_LARGE = 4 << 20  # bytes; below, sending takes no time worth a message
_NAMED = 5  # how many names a note has


OVERRIDES = click.option(
    "--config",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a field, such as resources.priority=3 (repeatable). A section, as in searcher='{max_trials: 4}', is merged.",
)
INCLUDES = click.option(
    "-i",
    "--include",
    "includes",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Also send this file or directory (repeatable).",
)
CONFIG_FILE = click.option(
    "--config-file", type=click.File(encoding="utf-8"), help="YAML to merge into the configuration."
)
CONTEXT_DIR = click.argument(
    "context_dir", metavar="[CONTEXT_DIR]", required=False, type=click.Path(exists=True, path_type=Path)
)
FOLLOW = click.option(
    "-f", "--follow", "--follow-first-trial", is_flag=True, help="Follow the first trial's log afterwards."
)
PUBLISH = click.option(
    "-p",
    "--publish",
    multiple=True,
    metavar="[LOCAL_PORT:]PORT",
    help="With --follow: lead a port of this machine to one of the first trial's proxy_ports meanwhile (repeatable).",
)
PAUSED = click.option("--paused", is_flag=True, help="Create it paused; det experiment activate starts it.")


@click.command()
@click.argument("config", metavar="CONFIG", type=click.File(encoding="utf-8"))
@CONTEXT_DIR
@FOLLOW
@PUBLISH
@PAUSED
@OVERRIDES
@INCLUDES
@click.option(
    "--project", "--project_id", "project", type=PROJECT, metavar="ID", help="Create it in this project (id or name)."
)
@click.option("--template", metavar="NAME", help="Lay CONFIG over this template; see det template list.")
@click.option("--local", is_flag=True, help="With --test-mode: run on this machine, without master or Slurm.")
@click.option("-t", "--test-mode", "--test", is_flag=True, help="With --local: train, validate, save and restore once.")
@output.as_json
def create(
    config: Any,
    context_dir: Optional[Path],
    follow: bool,
    publish: Sequence[str],
    paused: bool,
    overrides: Sequence[str],
    includes: Sequence[Path],
    project: Optional[int],
    template: Optional[str],
    local: bool,
    test_mode: bool,
    as_json: bool,
) -> None:
    """Create an experiment from CONFIG (YAML; - reads standard input) and the files of CONTEXT_DIR.

    All mistakes in CONFIG are shown at once, and then nothing is created. A .detignore file in CONTEXT_DIR, written like a
    .gitignore, excludes files.
    """
    if local != test_mode:
        raise click.UsageError("--local and --test-mode only work together: a short test on this machine.")
    if local:
        if template:
            raise click.UsageError("--template is not possible with --local: the master has the templates.")
        _test_here(read_config(config), config.name, overrides, context_dir, includes)
        return
    if paused and follow:
        raise click.UsageError("--paused and --follow are mutually exclusive: a paused experiment writes no log.")
    pairs = [PortPair.parse(text) for text in publish]
    if pairs and not follow:
        output.say("note: --publish has no effect without --follow; det tunnel leads to a trial at any time")
    written, files = read_config(config), packed(context_dir, includes)
    make = _check_and_send if overrides or _size(files) >= _LARGE else _send_to_be_checked
    if template:
        make = functools.partial(_send_over_template, template=template)
    answer = make(written, config.name, overrides, files, context_dir, activate=not paused, project=project)
    tell(answer, paused=paused, follow=follow, as_json=as_json, publish=pairs)


def _check_and_send(
    text: str, file: str, overrides: Sequence[str], files: list[Json], context_dir: Optional[Path], **options: Any
) -> Json:
    loaded, whole = checked(text, file, overrides)
    paths = [file["path"] for file in files]
    warn_of_variables(loaded.source.data, paths)
    with located(loaded.source):
        check_script(loaded.config.entrypoint, paths, context_dir)
        return send(whole, files, **options)


def _send_to_be_checked(
    text: str, file: str, overrides: Sequence[str], files: list[Json], context_dir: Optional[Path], **options: Any
) -> Json:
    """As ``_check_and_send``, and in a quarter of its time: the master alone checks the configuration, and where that gives rise to
    any words they are found here, too, with their places in the user's file."""
    from dethpc.config.source import read

    source, unreadable = read(text, file)
    try:
        if unreadable:
            raise errors.ConfigError(unreadable)
        paths = [file["path"] for file in files]
        check_script(source.data.get("entrypoint") or "", paths, context_dir)
        answer = send(text, files, **options)
    except errors.ConfigError:
        return _check_and_send(text, file, overrides, files, context_dir, **options)
    warn_of_variables(source.data, paths)
    if answer.get("configWarnings"):
        checked(text, file, overrides)
    return answer


def _send_over_template(
    text: str, file: str, overrides: Sequence[str], files: list[Json], context_dir: Optional[Path], **options: Any
) -> Json:
    """As ``_check_and_send``. The master has the template, so it alone knows the whole configuration, and checks it."""
    from dethpc import config
    from dethpc.config.combine import override
    from dethpc.config.source import read

    whole = config.with_overrides(text, overrides, file=file) if overrides else text
    source, unreadable = read(text, file)
    if unreadable:
        raise errors.ConfigError(unreadable)
    override(source, overrides)
    paths = [file["path"] for file in files]
    check_script(source.data.get("entrypoint") or "", paths, context_dir)
    with located(source):
        answer = send(whole, files, **options)
    warn_of_variables(answer["config"], paths)
    for warning in answer.get("configWarnings") or []:
        output.say(f"det: warning: {warning}")
    return answer


def tell(answer: Json, *, paused: bool, follow: bool, as_json: bool, publish: Sequence[PortPair] = ()) -> None:
    """What became of the request to create, and what comes next. ``follow``: the first trial's log, to its end, while the ports
    ``publish`` lead to it."""
    _warn_of_another_scheduler()
    number = answer["experiment"]["id"]
    output.reply(answer, f"Created experiment {number}", as_json)
    warn(answer)
    if sentence := interpreter.sentence(answer):
        output.say(sentence)
    if follow:
        follow_first_trial(number, publish)
    elif not as_json:
        output.say(_next(number, paused))


def warn(answer: Json) -> None:
    """Of what may keep the experiment's trials from starting, and of what else its owner should know."""
    for warning in answer.get("warnings") or []:
        output.say(f"det: warning: {_WARNINGS.get(warning, warning)}")
    output.say_notes(answer)


def _next(experiment_id: int, paused: bool) -> str:
    if paused:
        return f"next: det experiment activate {experiment_id} starts it"
    return (
        f"next: det experiment wait {experiment_id} shows its progress, det experiment logs {experiment_id} -f its log"
    )


def _warn_of_another_scheduler() -> None:
    from dethpc.cli import own_master
    from dethpc.cli.connect import named_master
    from dethpc.client import home
    from dethpc.rundir.home import Home

    if named_master():
        return
    held = Home(home().absolute()).own_master()
    if message := own_master.serves_another_cluster(held, os.environ):
        raise errors.Refused(message)
    if message := own_master.serves_another(held, os.environ):
        output.say(f"det: warning: {message}")


def read_config(file: Any) -> str:
    """The text of a configuration file. Raises ConfigError when it is not text."""
    from dethpc.config.source import MAX_BYTES

    try:
        text: str = file.read(MAX_BYTES + 1)  # what is larger is refused by its size
    except UnicodeDecodeError as error:
        message = f"the file is not text in UTF-8: it holds the byte {error.object[error.start]:#04x}"
        raise errors.ConfigError([errors.Problem("YAML", message).at(file.name)]) from None
    return text


@contextmanager
def located(source: Source) -> Iterator[None]:
    """Mistakes that the master alone can find, about pools for example, are told with their place in the user's file, too."""
    try:
        yield
    except errors.ConfigError as error:
        for problem in error.problems:
            if problem.file in (None, "config"):  # else it is of a template or a policy, which is no file of the user's
                problem.file, problem.line = source.place(problem.path)
        raise


def _test_here(
    text: str, file: str, overrides: Sequence[str], context_dir: Optional[Path], includes: Sequence[Path]
) -> None:
    from dethpc.cli.commands import local_test
    from dethpc.context.collect import collect

    loaded, _ = checked(text, file, overrides)
    context = collect(context_dir, list(includes))
    with located(loaded.source):
        paths = [entry.path for entry in context.entries]
        warn_of_variables(loaded.source.data, paths)
        check_script(loaded.config.entrypoint, paths, context_dir)
    steps = local_test.run(loaded, context)
    marks = {True: "ok", False: "failed", None: "-"}
    output.echo("")
    tables.show(tables.plain(["Step", "", ""], [[step.name, marks[step.good], step.message] for step in steps]))
    if any(step.good is False for step in steps):
        raise click.exceptions.Exit(1)


def checked(text: str, file: str, overrides: Sequence[str], warnings: Sequence[str] = ()) -> tuple[Loaded, str]:
    """The configuration, and the YAML to send, overrides worked in. Prints deprecations and other warnings about it, except
    those in ``warnings``, which were printed when the configuration that it is made of was sent.

    Raises ConfigError with every mistake.
    """
    from dethpc import config

    loaded = config.load(text, file=file, overrides=list(overrides))
    for change in loaded.translated:
        output.say(f"det: older form: {change}")
    if loaded.translated and file != "<stdin>":
        output.say(f"det: to rewrite it: det config upgrade {file}")
    shown = [_message(warning) for warning in warnings]
    for warning in loaded.warnings:
        if _message(warning) not in shown:
            output.say(f"det: warning: {warning}")
    return loaded, config.with_overrides(text, overrides, file=file) if overrides else text


def _message(warning: str) -> str:
    """Without the place that it is about."""
    return warning.split(": ", 1)[-1]


def check_script(entrypoint: Union[str, list[str]], paths: Sequence[str], context_dir: Optional[Path]) -> None:
    """Raises ConfigError when the script that the entrypoint runs, or the module of its trial class, is not among the ``paths``
    that are sent along: it would only be missed on a node. A startup hook may bring it."""
    from dethpc.domain.entrypoint import STARTUP_HOOK, named_class, named_script

    module, name = named_class(entrypoint)
    if module:
        _check_module(module, paths, context_dir)
        _check_class(module, name, paths, context_dir)
        return
    is_text = isinstance(entrypoint, (str, list)) and all(isinstance(word, str) for word in entrypoint)
    script = os.path.normpath((named_script(entrypoint) if is_text else "") or ".")
    if script == "." or script.startswith("..") or script in paths or STARTUP_HOOK in paths:
        return
    raise _not_sent(script, paths, context_dir)


def warn_of_variables(data: Mapping[str, Any], paths: Sequence[str]) -> None:
    """Of those in the entrypoint of the configuration ``data`` that are set neither by it nor in this shell, where no line of its
    own prepares the environment. Hyperparameters are no variables, which many try first."""
    from dethpc.domain.entrypoint import STARTUP_HOOK, unset_variables

    environment, hparams = _mapping(data.get("environment")), _mapping(data.get("hyperparameters"))
    given = environment.get("environment_variables") or []
    lists = given.values() if isinstance(given, Mapping) else [given]
    pairs = [str(pair) for values in lists if isinstance(values, list) for pair in values]
    if STARTUP_HOOK in paths or environment.get("setup"):
        return
    names = unset_variables(data.get("entrypoint"), {*os.environ, *(pair.partition("=")[0] for pair in pairs)})
    for name in names:
        meant = next((hparam for hparam in hparams if str(hparam).lower() == name.lower()), None)
        instead = (
            f"for the hyperparameter write {{{meant}}}"
            if meant is not None
            else f"set it in environment.environment_variables ({name}=VALUE)"
        )
        output.say(f"det: warning: entrypoint: ${name} is not set, so nothing will stand there; {instead}")


def _mapping(section: object) -> Mapping[str, Any]:
    return section if isinstance(section, Mapping) else {}


def _check_module(module: str, paths: Sequence[str], context_dir: Optional[Path]) -> None:
    """Raises ConfigError. A module may also be installed where it trains: it is missed only if this Python is the one that trains,
    and has none of that name."""
    import importlib.util
    import shutil

    from dethpc.domain.entrypoint import STARTUP_HOOK

    file, top = module.replace(".", "/"), module.partition(".")[0]
    # Below another folder it may be reached by PYTHONPATH.
    if STARTUP_HOOK in paths or any(f"/{path}".endswith(f"/{file}.py") or f"/{file}/" in f"/{path}" for path in paths):
        return
    package_is_sent = any(path == f"{top}.py" or path.startswith(f"{top}/") for path in paths)
    another_python = os.path.dirname(shutil.which("python3") or "") != os.path.dirname(sys.executable)
    if not package_is_sent and (another_python or importlib.util.find_spec(top) is not None):
        return
    raise _not_sent(f"{file}.py", paths, context_dir)


def _check_class(module: str, name: str, paths: Sequence[str], context_dir: Optional[Path]) -> None:
    """Raises ConfigError where the module's own text can bring no class of that name: it defines, imports and assigns others."""
    import ast

    file = f"{module.replace('.', '/')}.py"
    if context_dir is None or file not in paths:
        return
    try:
        tree = ast.parse((context_dir / file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # its first line that counts is told by the node that imports it
    named: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            named.add(node.name)
        elif isinstance(node, ast.alias):
            named.add(node.asname or node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            named.add(node.id)
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    name = name.partition(".")[0]
    if name in named or "*" in named or "__getattr__" in ast.dump(tree):
        return
    from dethpc.config.wording import did_you_mean

    there = f"only {', '.join(classes)}" if classes else "which has no class"
    message = f"there is no {name} in {file}, {there}"
    raise errors.ConfigError([errors.Problem("entrypoint", message, did_you_mean(name, classes))])


def _not_sent(file: str, paths: Sequence[str], context_dir: Optional[Path]) -> errors.ConfigError:
    """That the entrypoint needs ``file``, which is not among the ``paths`` that are sent."""
    from dethpc.config.wording import did_you_mean

    ending = os.path.splitext(file)[1]
    alike = [path for path in paths if os.path.splitext(path)[1] == ending]
    hint = did_you_mean(file, alike, alike=0.75)  # the ending alone makes names alike
    if context_dir is None:
        message = f"{file} would not be sent: name its directory, as in det experiment create CONFIG ."
    else:
        message = f"{file} is not in {context_dir}"
    return errors.ConfigError([errors.Problem("entrypoint", message, hint)])


def packed(context_dir: Optional[Path], includes: Sequence[Path]) -> list[Json]:
    """The files to send, as the wire wants them. Raises ContextError."""
    from dethpc.context.collect import collect

    context = collect(context_dir, list(includes))
    if context.left_out:
        names = ", ".join(context.left_out[:_NAMED]) + (", ..." if len(context.left_out) > _NAMED else "")
        output.say(
            f"det: note: not sent: {names} (a line such as !{Path(context.left_out[0]).name} in .detignore sends it)"
        )
    for home in context.homes:
        output.say(f"det: note: not sent: {home}, a home of dethpc's, which holds the key to its master")
    return context.model_definition()


def send(config: str, files: list[Json], **options: Any) -> Json:
    """Create the experiment; see ``client.nouns.experiments.create``."""
    from dethpc.client.nouns import experiments

    session, content = connect(), _size(files)
    with _progress(f"sending {output.size(content)} in {len(files)} files ...", shown=content >= _LARGE) as on_sent:
        return experiments.create(session, config, files, on_sent=on_sent, **options)


def _size(files: list[Json]) -> float:
    """Bytes."""
    return sum(len(file.get("content") or "") for file in files) * 3 / 4


@contextmanager
def _progress(text: str, *, shown: bool) -> Iterator[Optional[Callable[[int, int], None]]]:
    """What takes a while, on standard error, and on a terminal for how long it has and how much of it is sent."""
    if not shown:
        yield None
    elif not sys.stderr.isatty():
        output.say(text)
        yield None
    else:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(text, total=None)

            def on_sent(sent: int, total: int) -> None:
                progress.update(task, completed=sent, total=total)
                if sent == total:
                    progress.update(task, description="sent; the master packs it ...", refresh=True)

            yield on_sent


def follow_first_trial(experiment_id: int, publish: Sequence[PortPair] = ()) -> None:
    from dethpc.cli.commands.logs import Options, first_trial, show

    try:
        trial = first_trial(connect(), experiment_id, wait=True)
    except KeyboardInterrupt:
        output.say(
            f"\nStopped waiting; the experiment continues. To see its log: det experiment logs -f {experiment_id}"
        )
        raise click.exceptions.Exit(130) from None
    if trial is None:
        raise errors.NotFound(
            f"experiment {experiment_id} ended without a trial; see det experiment describe {experiment_id}"
        )
    if not publish:
        show(trial, Options(follow=True))
        return
    session = connect()
    task = session.get(f"/api/v1/trials/{trial}")["trial"]["taskId"]
    with forwarded(session, task, publish):
        show(trial, Options(follow=True))
