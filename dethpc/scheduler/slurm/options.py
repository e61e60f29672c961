"""Options of sbatch: their spelling, and how a trial's job uses each. docs/sbatch-args.md has the same table.

``read`` takes the words of ``#SBATCH`` lines, of ``slurm.sbatch_args`` and of a command line as sbatch itself does: any unambiguous
beginning of a long name, short options in bundles, values joined or apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum


class Use(Enum):
    """What becomes of an option."""

    VERBATIM = "kept"  # on the job's own #SBATCH lines, as it is
    SHAPE = "shape"  # kept, too; slots and nodes follow from it, and dethpc's own line gives way
    TRANSLATED = "translated"  # dethpc does by its own means what is needed, and says so
    REFUSED = "refused"  # makes no sense for one trial


class Argument(Enum):
    REQUIRED = "required"
    OPTIONAL = "optional"
    NONE = "none"


@dataclass(frozen=True)
class Rule:
    """``why``: the reason of a refusal, or what stands for a translated option. ``same_as``: it is another name
    of that option."""

    name: str
    use: Use
    short: str = ""
    argument: Argument = Argument.REQUIRED
    why: str = ""
    same_as: str = ""


@dataclass(frozen=True)
class Option:
    """``rule`` is None of an option that is not in the table: a later release's, or that of a site's plugin."""

    name: str
    value: str | None = None
    rule: Rule | None = field(default=None, compare=False)

    @property
    def use(self) -> Use:
        return self.rule.use if self.rule else Use.VERBATIM

    @property
    def why(self) -> str:
        return self.rule.why if self.rule else ""

    def __str__(self) -> str:
        return f"--{self.name}" if self.value is None else f"--{self.name}={self.value}"


_LOG = "dethpc writes the log, which det trial logs, det command logs and the like show"
_RESUMES = "dethpc itself resumes runs from their checkpoints"
_ANSWER = "dethpc reads what sbatch prints"
_VARIABLES = "jobs have the environment of the shell that created the experiment; set environment.environment_variables"
_NO_JOB = "nothing would be submitted"
_OWNER = "jobs run as the owner of the master"
_IMAGE = "the job's script is dethpc's; set environment.image, or the container of the resource pool"

REFUSED: Mapping[str, str] = {
    "array": "a run is one job: use the searcher to try many configurations",
    "clusters": "a resource pool belongs to one cluster",
    "container": _IMAGE,
    "container-id": _IMAGE,
    "gid": _OWNER,
    "help": _NO_JOB,
    "nodefile": "the job is submitted from another directory; use --nodelist",
    "test-only": _NO_JOB,
    "uid": _OWNER,
    "usage": _NO_JOB,
    "version": _NO_JOB,
    "wait": "the master does not wait for single jobs; use det experiment wait",
    "wrap": "the script is dethpc's; give the entrypoint instead",
}

TRANSLATED: Mapping[str, str] = {
    "chdir": "the script starts in a copy of the context directory",
    "error": _LOG,
    "export": "jobs have the environment of the shell that created the experiment, and NAME=VALUE of this option",
    "export-file": _VARIABLES,
    "get-user-env": _VARIABLES,
    "input": "a trial has no standard input",
    "job-name": "dethpc finds its jobs by name; the experiment has this name unless it has one, and SLURM_JOB_NAME is it",
    "no-requeue": _RESUMES,
    "open-mode": _LOG,
    "output": _LOG,
    "parsable": _ANSWER,
    "partition": "selects the resource pool",
    "quiet": _ANSWER,
    "requeue": _RESUMES,
}

# What decides how many nodes, tasks, cores, GPUs and how much memory a job has.
NODES = frozenset({"nodes"})
TASKS = frozenset(
    {
        "ntasks",
        "ntasks-per-core",
        "ntasks-per-gpu",
        "ntasks-per-node",
        "ntasks-per-socket",
        "ntasks-per-tres",
        "tasks-per-node",
    }
)
CPUS = frozenset({"cpus-per-gpu", "cpus-per-task"})
GPUS = frozenset({"gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task"})
MEMORY = frozenset({"mem", "mem-per-cpu", "mem-per-gpu"})
_SHAPE = NODES | TASKS | CPUS | GPUS | MEMORY | {"exclusive", "gres", "sockets-per-node", "tres-per-task"}

_SHORT = {
    "array": "a", "account": "A", "extra-node-info": "B", "begin": "b", "constraint": "C", "cpus-per-task": "c", "chdir": "D",
    "dependency": "d", "error": "e", "nodefile": "F", "gpus": "G", "hold": "H", "help": "h", "input": "i", "job-name": "J",
    "no-kill": "k", "licenses": "L", "clusters": "M", "distribution": "m", "nodes": "N", "ntasks": "n", "overcommit": "O",
    "output": "o", "partition": "p", "quiet": "Q", "qos": "q", "core-spec": "S", "oversubscribe": "s", "time": "t",
    "version": "V", "verbose": "v", "wait": "W", "nodelist": "w", "exclude": "x",
}  # fmt: skip
_FLAGS = frozenset(
    "contiguous help hold ignore-pbs no-requeue overcommit oversubscribe parsable quiet reboot requeue share spread-job stepmgr "
    "test-only usage use-min-nodes verbose version wait consolidate-segments spread-segments".split()
)
_OPTIONAL = frozenset({"exclusive", "get-user-env", "nice", "no-kill", "oom-kill-step", "propagate", "resv-ports"})
_VERBATIM = (
    "account acctg-freq batch bb bbf begin cluster-constraint comment consolidate-segments constraint context contiguous core-spec "
    "cores-per-socket cpu-freq deadline delay-boot dependency distribution exclude extra extra-node-info gpu-bind gpu-freq "
    "gres-flags hint hold ignore-pbs kill-on-invalid-dep licenses mail-type mail-user mcs-label mem-bind mincpus network nice "
    "no-kill nodelist oom-kill-step overcommit oversubscribe power prefer priority profile propagate qos reboot reservation "
    "resv-ports segment share signal spread-job spread-segments stepmgr switches thread-spec threads-per-core time time-min tmp "
    "tres-bind use-min-nodes verbose wait-all-nodes wckey"
).split()
_SAME = {"cluster": "clusters", "tasks-per-node": "ntasks-per-node"}


def _rules() -> Iterator[Rule]:
    uses = dict.fromkeys(_VERBATIM, Use.VERBATIM) | dict.fromkeys(_SHAPE, Use.SHAPE)
    uses |= dict.fromkeys(TRANSLATED, Use.TRANSLATED) | dict.fromkeys(REFUSED, Use.REFUSED) | {"cluster": Use.REFUSED}
    for name, use in sorted(uses.items()):
        argument = Argument.NONE if name in _FLAGS else Argument.OPTIONAL if name in _OPTIONAL else Argument.REQUIRED
        why = REFUSED.get(_SAME.get(name, name)) or TRANSLATED.get(name, "")
        yield Rule(name, use, _SHORT.get(name, ""), argument, why, _SAME.get(name, ""))


RULES: Mapping[str, Rule] = {rule.name: rule for rule in _rules()}
_BY_LETTER = {rule.short: rule for rule in RULES.values() if rule.short}
_NOT_EVERYWHERE = frozenset(
    "consolidate-segments container-id context extra oom-kill-step resv-ports segment share spread-segments stepmgr tres-bind "
    "tres-per-task".split()
)  # of newer or older releases: no beginning of theirs makes another name ambiguous


class Unreadable(ValueError):
    """Words that sbatch would not take. ``str`` has the words and what is wrong with them."""


def read(argv: Sequence[str]) -> Iterator[Option]:
    """The options that the words are. Raises Unreadable."""
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word.startswith("--") and len(word) > 2:
            yield _long(word, rest)
        elif word.startswith("-") and word not in ("-", "--"):
            yield from _bundle(word, rest)
        else:
            raise Unreadable(f"{word!r} is not an option")


def _long(word: str, following: list[str]) -> Option:
    given, equals, text = word[2:].partition("=")
    rule = _rule(given)
    if rule is None:
        value = text if equals else following.pop(0) if following and not following[0].startswith("-") else None
        return Option(given, value)
    if rule.argument is Argument.NONE:
        if equals:
            raise Unreadable(f"{word}: --{rule.name} takes no value")
        return _option(rule, None)
    if equals or rule.argument is Argument.OPTIONAL:
        return _option(rule, text if equals else None)
    if not following:
        raise Unreadable(f"{word}: --{rule.name} needs a value")
    return _option(rule, following.pop(0))


def _bundle(word: str, following: list[str]) -> Iterator[Option]:
    """``-Hn4`` is ``-H`` and ``-n 4``."""
    for at, letter in enumerate(word[1:], 1):
        rule = _BY_LETTER.get(letter)
        if rule is None:
            raise Unreadable(f"{word}: sbatch has no option -{letter}")
        rest = word[at + 1 :]
        if rule.argument is Argument.NONE:
            yield _option(rule, None)
            continue
        if rule.argument is Argument.OPTIONAL:
            yield _option(rule, rest or None)
        elif rest or following:
            yield _option(rule, rest or following.pop(0))
        else:
            raise Unreadable(f"{word}: -{letter} needs a value")
        return


def _rule(given: str) -> Rule | None:
    """The option of that name, or the only one whose name begins so. None: none does. Raises Unreadable."""
    if given in RULES:
        return RULES[given]
    begun = [rule for name, rule in RULES.items() if name.startswith(given)]
    fitting = [rule for rule in begun if rule.name not in _NOT_EVERYWHERE] or begun
    if len({rule.same_as or rule.name for rule in fitting}) > 1:
        raise Unreadable(f"--{given} is ambiguous: it begins {', '.join(f'--{rule.name}' for rule in fitting)}")
    return fitting[0] if fitting else None


def _option(rule: Rule, value: str | None) -> Option:
    return Option(rule.same_as or rule.name, value, RULES.get(rule.same_as, rule))
