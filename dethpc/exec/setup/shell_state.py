"""State of the shell that has sourced ``startup-hook.sh``, for the entrypoint: environment, working directory, umask, limits.

As in Determined, whose entrypoint script sources the hook under ``set -e`` and then becomes the entrypoint. Here the nodes meet in
between, and more than one process may follow, so that the shell writes down its state and ends. The files lie in a folder of the
attempt's own (0700) and are removed as soon as they are read: what a hook exports may be a secret.
"""

from __future__ import annotations

import os
import shlex
import shutil
from typing import Mapping, NamedTuple, Optional, Sequence

from dethpc.exec import pip_shim

_SHELLS_OWN = ("_", "SHLVL", "SHELLOPTS", "BASHOPTS", "PS1")
_ENDS_WITH = "dethpc-end"

# Its functions are read before the hook, so that an alias, `set -a` or `set -u` of the hook changes none of them.
_PROGRAM = r"""
dethpc_limits() {
    while IFS= read -r dethpc_line; do command printf '%s\n' "$dethpc_line"; done </proc/self/limits
}
dethpc_hand_over() {
    { trap - EXIT; set +aeuCxv; } 2>/dev/null
    { command umask; command printf '\0'; command pwd -P; command printf '\0'; dethpc_limits; command printf '\0'
      @ENV@ -0 && command printf '@END@\0'; } >>@STATE@
    exit
}
dethpc_limits >@STATE@
command printf '\0' >>@STATE@
@TRAPS@
trap '[ $? -ne 0 ] || dethpc_hand_over' EXIT
set -e
. ./@HOOK@
dethpc_hand_over
"""

# The innermost line that is one of the hook itself. A subshell's own failure is told once more by the shell that ran it.
_TRAPS = r"""
dethpc_failed() {
    case $- in *e*) ;; *) return 0 ;; esac
    [ "$BASHPID" = "$$" ] || return 0
    local dethpc_frame dethpc_line=$2
    for ((dethpc_frame = 1; dethpc_frame < ${#BASH_SOURCE[@]}; dethpc_frame++)); do
        if [ "${BASH_SOURCE[dethpc_frame]}" = ./@HOOK@ ]; then
            command printf '%s %s\n' "$1" "$dethpc_line" >|@FAILURE@
            return 0
        fi
        dethpc_line=${BASH_LINENO[dethpc_frame]}
    done
}
trap 'dethpc_failed "$?" "$LINENO"' ERR
set -E
"""

# Rows of /proc/self/limits: the letter of bash's ulimit, and in how many bytes, seconds or pieces it counts.
_LIMITS = {
    "Max cpu time": ("t", 1),
    "Max file size": ("f", 1024),
    "Max data size": ("d", 1024),
    "Max stack size": ("s", 1024),
    "Max core file size": ("c", 1024),
    "Max resident set": ("m", 1024),
    "Max processes": ("u", 1),
    "Max open files": ("n", 1),
    "Max locked memory": ("l", 1024),
    "Max address space": ("v", 1024),
    "Max file locks": ("x", 1),
    "Max pending signals": ("i", 1),
    "Max msgqueue size": ("q", 1),
}


class ShellState(NamedTuple):
    """``before`` is the environment that the shell began with; ``limits`` are arguments of ``ulimit`` for what it changed."""

    shell: str
    before: Mapping[str, str]
    env: Mapping[str, str]
    directory: str
    umask: int
    limits: Sequence[str]

    def over(self, env: Mapping[str, str]) -> dict[str, str]:
        """The environment of a process for which dethpc alone would set ``env``: as the shell left it, and with what dethpc has
        set otherwise since the shell began."""
        result = dict(self.env)
        for name in {*self.before, *env} - {"PYTHONPATH"}:
            value = env.get(name)
            if value is None:
                if name in self.before:
                    result.pop(name, None)
            elif value != self.before.get(name) or name == pip_shim.RULES:
                result[name] = _put_before(value, self.before.get(name), result.get(name))
        _see_dethpc(result, self.before)
        return result

    def limited(self, argv: Sequence[str]) -> list[str]:
        """``argv`` under the limits that the shell had."""
        if not self.limits:
            return list(argv)
        lines = [f"ulimit {limit} 2>/dev/null" for limit in self.limits]
        return [self.shell, "-c", "; ".join([*lines, 'exec "$@"']), self.shell, *argv]


class Files(NamedTuple):
    """Where the shell writes."""

    state: str
    failure: str

    @classmethod
    def make(cls, folder: str) -> Files:
        """Empty ones, readable for their owner alone whatever the hook's umask. Raises: OSError."""
        files = cls(os.path.join(folder, "hook-state"), os.path.join(folder, "hook-failure"))
        for path in files:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600))
        return files

    def remove(self) -> None:
        for path in self:
            if os.path.lexists(path):
                os.unlink(path)

    def program(self, shell: str, hook: str) -> str:
        """What ``shell`` runs: source ``hook`` of its working directory under ``set -e``, and write its state."""
        traps = _TRAPS if os.path.basename(shell) == "bash" else ""
        values = {
            "@TRAPS@": traps,
            "@ENV@": shlex.quote(shutil.which("env", path=os.defpath) or "/usr/bin/env"),
            "@STATE@": shlex.quote(self.state),
            "@FAILURE@": shlex.quote(self.failure),
            "@HOOK@": hook,
            "@END@": _ENDS_WITH,
        }
        text = _PROGRAM
        for mark, value in values.items():
            text = text.replace(mark, value)
        return text

    def failed_line(self, code: int) -> Optional[int]:
        """The line of the hook whose command ended it with ``code``, where that is known."""
        with open(self.failure, encoding="ascii", errors="replace") as file:
            fields = file.read().split()
        return int(fields[1]) if len(fields) == 2 and fields[0] == str(code) and fields[1].isdigit() else None

    def read(self, shell: str, before: Mapping[str, str]) -> Optional[ShellState]:
        """None when the shell did not come to write it."""
        with open(self.state, "rb") as file:
            fields = file.read().split(b"\0")
        if len(fields) < 5 or fields[-2:] != [_ENDS_WITH.encode(), b""]:
            return None
        old, umask, directory, new, *entries = (os.fsdecode(field) for field in fields[:-2])
        pairs = (entry.partition("=") for entry in entries)
        env = {name: value for name, equals, value in pairs if equals and not name.startswith("dethpc_")}
        for name in _SHELLS_OWN:
            env.pop(name, None)
        env.update({name: before[name] for name in before if name in _SHELLS_OWN or not _is_shell_name(name)})
        changed = _changed(_limits(old), _limits(new), 1024 if os.path.basename(shell) == "bash" else 512)
        return ShellState(shell, before, env, directory.rstrip("\n"), int(umask, 8), changed)


def _is_shell_name(name: str) -> bool:
    """Whether every shell passes a variable of this name on. Bash's functions, ``BASH_FUNC_x%%``, are passed on by bash alone."""
    return name.isidentifier() and name.isascii()


def _limits(table: str) -> dict[str, tuple[str, str]]:
    """Soft and hard limits by the row of /proc/self/limits."""
    limits = {}
    for line in table.splitlines():
        for row in _LIMITS:
            if line.startswith(row):
                soft, hard = line[len(row) :].split()[:2]
                limits[row] = (soft, hard)
    return limits


def _changed(old: Mapping[str, tuple[str, str]], new: Mapping[str, tuple[str, str]], block: int) -> list[str]:
    """``block``: bytes in which the shell counts the sizes of files."""
    options = []
    for row, limits in new.items():
        letter, unit = _LIMITS[row]
        unit = block if letter in "fc" else unit
        # The soft one first: it may be above the hard one otherwise.
        for option, before, now in zip("SH", old.get(row, limits), limits):
            if before != now:
                options.append(f"-{option} -{letter} {now if now == 'unlimited' else int(now) // unit}")
    return options


def _put_before(value: str, before: Optional[str], current: Optional[str]) -> str:
    """``value``, or where it is ``before`` with something put before it, that put before ``current``: such as a folder of PATH."""
    if before and current and value.endswith(os.pathsep + before):
        return value[: -len(before)] + current
    return value


def _see_dethpc(env: dict[str, str], before: Mapping[str, str]) -> None:
    """A hook may set PYTHONPATH anew (``export PYTHONPATH=$PWD/src``); what dethpc had put there stays in front."""
    ours = (pip_shim.FOLDER, pip_shim.DETHPC)
    paths = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    missing = [path for path in before.get("PYTHONPATH", "").split(os.pathsep) if path in ours and path not in paths]
    if missing:
        env["PYTHONPATH"] = os.pathsep.join([*missing, *paths])
