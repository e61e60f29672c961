"""What an experiment's entrypoint is: a command, or an sbatch script of the user's own."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, Container, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

STARTUP_HOOK = "startup-hook.sh"
"""The script of the context directory that every node runs before the entrypoint."""

SUFFIXES = (".sbatch", ".slurm")

_TRIAL_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class BatchScript(NamedTuple):
    """``path`` is relative to the context directory. ``options`` are those given to sbatch beside the file's own."""

    path: str
    arguments: list[str]
    options: list[str]


def batch_script(entrypoint: Union[str, Sequence[str]]) -> Optional[BatchScript]:
    """The sbatch script that the entrypoint names: ``train.sbatch ARGS`` or ``sbatch OPTIONS train.sh ARGS``; None for others.

    Options stand as one word each (``--time=10``, ``-t10``), as nobody can tell an option's value from the script otherwise.
    """
    if isinstance(entrypoint, str):
        try:
            argv = shlex.split(entrypoint)
        except ValueError:
            return None
    else:
        argv = list(entrypoint)
    options: list[str] = []
    submitted = argv[:1] == ["sbatch"]
    if submitted:
        argv = argv[1:]
        while argv and argv[0].startswith("-"):
            options.append(argv.pop(0))
    if not argv or not (submitted or argv[0].endswith(SUFFIXES)):
        return None
    path = argv[0][2:] if argv[0].startswith("./") else argv[0]
    return BatchScript(path, argv[1:], options)


def is_trial_class(word: str) -> bool:
    """Whether ``word`` is of the form ``module:Class``; the class may lie inside of others."""
    return _TRIAL_CLASS.fullmatch(word.strip()) is not None


def by_module(spec: str) -> str:
    """``path/to/file.py:Class`` and ``path/to/file:Class`` as ``path.to.file:Class``; what names a module already as it is."""
    path, colon, name = spec.strip().partition(":")
    path = path[2:] if path.startswith("./") else path
    path = path[:-3] if path.endswith(".py") else path
    return path.replace("/", ".") + colon + name


def named_class(entrypoint: object) -> Tuple[str, str]:
    """The module of the trial class that the entrypoint names, and the class's name in it; "" where it names none."""
    if not trains_a_trial_class(entrypoint):
        return "", ""
    argv = _blank_separated(entrypoint)
    spec = argv[-1]
    for before, word in zip(["", *argv], argv):
        if before == "--trial" or (word.startswith("--trial=") and word != "--trial="):
            spec = word.partition("=")[2] or word
            break
    module, _, name = by_module(spec).partition(":")
    return ("", "") if module.startswith("-") else (module, name)


def _blank_separated(entrypoint: object) -> List[str]:
    """Empty for what is no entrypoint, as a configuration that nobody has checked may hold."""
    if isinstance(entrypoint, str):
        return entrypoint.split()
    return [str(word) for word in entrypoint] if isinstance(entrypoint, list) else []


def trains_a_trial_class(entrypoint: object) -> bool:
    """Whether the entrypoint names a trial class: alone or for a launcher, inside another command, ``--trial`` before it or not."""
    argv = _blank_separated(entrypoint)
    if any(word == "--trial" or word.startswith("--trial=") for word in argv):
        return True
    if not argv or (len(argv) > 1 and not any(".launch." in word for word in argv)):
        return False
    return is_trial_class(argv[-1])


_STARTERS = re.compile(
    r"python[\d.]*|(?:ba|da|z|k)?sh|torchrun|accelerate|deepspeed|horovodrun|mpirun|mpiexec|srun|env|time"
)
_LAUNCHING = re.compile(
    r"(?:dethpc|determined)\.launch\.\w+|torch\.distributed\.(?:run|launch)|accelerate\.commands\.launch"
)
_OF_A_SHELL = frozenset("|&;<>()$`*?[#~!{\n")
_REFERENCE = re.compile(r"\{(?:(?P<all>hparams\.\.\.)|(?P<name>[^{}\s]+))\}")
"""What ``filled`` may replace."""
_ARGUMENT = re.compile(r"(?:^|(?<=[\s=]))\{([A-Za-z_]\w*(?:\.\w+)*)\}(?=\s|$)")


def _plain_words(entrypoint: Union[str, Sequence[str]]) -> List[str]:
    """Its words; empty where a shell would do more than to split it into them."""
    if not isinstance(entrypoint, str):
        return list(entrypoint)
    if _OF_A_SHELL & set(_REFERENCE.sub("", entrypoint)):
        return []
    try:
        return shlex.split(entrypoint)
    except ValueError:
        return []


def program(entrypoint: Union[str, Sequence[str]]) -> List[str]:
    """The words of an entrypoint that runs a file of the context directory (``./job.sh ARGS``, ``job.sh ARGS``): its path, relative
    to that directory, and its arguments. Empty where a shell would do more than to split it into words."""
    argv = _plain_words(entrypoint)
    if not argv or argv[0].startswith(("/", "-")) or not (argv[0].startswith("./") or argv[0].endswith(".sh")):
        return []
    return [argv[0][2:] if argv[0].startswith("./") else argv[0], *argv[1:]]


def named_script(entrypoint: Union[str, Sequence[str]]) -> str:
    """The file of the context directory that the entrypoint runs, relative to it; "" where that cannot be told for certain.

    ``python3 -u train.py --lr 1`` runs ``train.py``, ``python3 -m dethpc.launch.torch_distributed python3 train.py`` too. What a
    shell would do more with than to split it into words, another directory and a module (``-m``) may be anywhere.
    """
    argv = _plain_words(entrypoint)
    while argv and re.match(r"\w+=", argv[0]):
        argv.pop(0)
    if argv and argv[0].startswith("./"):
        return argv[0][2:]
    if not argv or _STARTERS.fullmatch(argv[0].rpartition("/")[2]) is None:
        return ""
    for before, word in zip(argv, argv[1:]):
        if before == "-c" or (before == "-m" and _LAUNCHING.fullmatch(word) is None):
            return ""
        if word.endswith((".py", ".sh")) and not word.startswith(("-", "/")) and "=" not in word:
            return word[2:] if word.startswith("./") else word
    return ""


_OF_THE_NODE = re.compile(
    r"(?:DET|DETHPC|SLURM|SLURMD|SBATCH|SRUN|CUDA|ROCR|HIP|NCCL|OMP|OMPI|PMI|PMIX|MASTER|LC)_\w+"
    r"|RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GPU_DEVICE_ORDINAL|TMPDIR|HOSTNAME|HOME|USER|LOGNAME|SHELL|PATH|PWD|OLDPWD|LANG"
    r"|PYTHONPATH|UID|EUID|PPID|IFS|RANDOM|SECONDS|LINENO|OPTARG|OPTIND|REPLY|BASH\w*|FUNCNAME|PIPESTATUS"
    r"|EPOCHREALTIME|EPOCHSECONDS"
)
"""What a shell has, or what a job finds set, whatever its user's environment is."""
_EXPANSION = re.compile(r"\$(?:(?P<plain>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)\})")
_SETS = re.compile(r"(?<![\w$])(\w+)\+?=|\bfor\s+(\w+)\s+in\b|\bread\b([^;|&\n]*)|\bprintf\s+-v\s*(\w+)")


def unset_variables(entrypoint: object, names: Container[str]) -> List[str]:
    """The variables that the entrypoint's shell puts in as nothing, in the order of their first use: neither in
    ``names``, nor set by the entrypoint itself, nor by a job. One with a default
    (``${LR:-1}``) is meant to be unset."""
    if not isinstance(entrypoint, str):
        return []
    own = {name for match in _SETS.findall(entrypoint) for part in match for name in part.split()}
    unset: List[str] = []
    at, quote = 0, ""
    while at < len(entrypoint):
        char = entrypoint[at]
        expansion = _EXPANSION.match(entrypoint, at) if quote != "'" else None
        if expansion:
            name = expansion["plain"] or expansion["braced"]
            if name not in names and name not in own and name not in unset and not _OF_THE_NODE.fullmatch(name):
                unset.append(name)
        elif char in "'\"" and quote in ("", char):
            quote = "" if quote else char
        at += 2 if char == "\\" and quote != "'" else 1
    return unset


def unknown_references(entrypoint: Union[str, Sequence[str]], hparams: Mapping[str, Any]) -> List[str]:
    """What ``filled`` leaves as it is typed though it stands where an argument does, alone or after ``=``: scripts have braces of
    their own elsewhere. ``hparams`` are values or ranges; where there are none, nobody refers to one."""
    text, names = entrypoint if isinstance(entrypoint, str) else " ".join(entrypoint), _by_path(hparams)
    return [name for name in _ARGUMENT.findall(text) if name not in names] if names else []


def filled(entrypoint: Union[str, Sequence[str]], hparams: Mapping[str, Any]) -> Union[str, List[str]]:
    """``entrypoint`` with ``{name}`` replaced by the value of that hyperparameter, nested ones by dots (``{optimizer.lr}``), and
    ``{hparams...}`` by all of them as flags. What no hyperparameter is called, and ``${name}``, stays as it is typed.

    In a string a value is one word for the shell whatever it holds, also inside of quotes; in a list it is put in as it is. A text
    is put in as it is, anything else as JSON. As flags: ``--optimizer.lr 0.1``; true is the flag alone, false and null leave it
    out, and a list is several words (``--layers 64 32``).
    """
    values = _by_path(hparams)
    flags = _flags(values)
    if isinstance(entrypoint, str):
        return _filled_text(entrypoint, values, flags)
    argv: List[str] = []
    for word in entrypoint:
        argv += flags if word == "{hparams...}" else [_filled_text(word, values, flags, shell=False)]
    return argv


def _filled_text(text: str, values: Mapping[str, Any], flags: Sequence[str], shell: bool = True) -> str:
    """``values`` by path; ``shell``: ``text`` goes through one, else it is a word as it is."""
    result, at, quote = [], 0, ""
    while at < len(text):
        reference = None if text[at] != "{" or text[at - 1 : at] == "$" else _REFERENCE.match(text, at)
        if reference and reference["all"]:
            quoted_flags = shlex.join(flags)  # in quotes, too, where another shell is to split them
            result.append((_quoted(quoted_flags, quote) if quote else quoted_flags) if shell else " ".join(flags))
            at = reference.end()
        elif reference and reference["name"] in values:
            value = _text(values[reference["name"]])
            result.append(_quoted(value, quote) if shell else value)
            at = reference.end()
        else:
            char = text[at]
            if shell and char == "\\" and quote != "'":
                result.append(text[at : at + 2])
                at += 2
                continue
            if shell and char in "'\"" and quote in ("", char):
                quote = "" if quote else char
            result.append(char)
            at += 1
    return "".join(result)


def _quoted(value: str, quote: str) -> str:
    """``value`` for a place that is inside of ``quote``."""
    if quote == "'":
        return value.replace("'", "'\"'\"'")
    return re.sub(r'([\\"$`])', r"\\\1", value) if quote else shlex.quote(value)


def _by_path(hparams: Mapping[str, Any], above: str = "") -> Dict[str, Any]:
    values: Dict[str, Any] = {}
    for name, value in hparams.items():
        values[f"{above}{name}"] = value
        if isinstance(value, Mapping):
            values.update(_by_path(value, f"{above}{name}."))
    return values


def _flags(values: Mapping[str, Any]) -> List[str]:
    """``values`` by path."""
    flags: List[str] = []
    for name, value in values.items():
        if isinstance(value, Mapping) or value is None or value is False:
            continue
        flags.append(f"--{name}")
        if value is not True:
            flags += map(_text, value) if isinstance(value, (list, tuple)) else [_text(value)]
    return flags


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
