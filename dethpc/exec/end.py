"""How this node's part ended, and the end report of the attempt."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from typing import Any, Iterable, Mapping, NamedTuple, Optional, Sequence, Union

from dethpc.domain.attempts.end_report import EndReport, killed_by, signal_of
from dethpc.errors import RunDirError
from dethpc.exec.supervision import tee
from dethpc.rundir.files import read_json, sealed, write_json
from dethpc.rundir.layout import AttemptDir

WRITE_TRIES = 5


class NodeResult(NamedTuple):
    """``phase`` is how far the node came: storage (which holds what it goes on from), setup (of the environment), unpack, hook,
    rendezvous, launch (a launcher refused) or train. ``exit_code`` is as a shell states it (128 + n for signal n), None when no
    process of the user's ended. ``early`` means that it was asked to stop before training began; ``at`` is when that which failed
    did, in epoch seconds; ``secondary``: it failed for want of some other worker."""

    phase: str
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    message: str = ""
    tail: Sequence[str] = ()
    node: int = 0
    early: bool = False
    stop_reason: Optional[str] = None
    at: Optional[float] = None
    secondary: bool = False

    @property
    def good(self) -> bool:
        return self.exit_code == 0

    def to_json(self) -> dict[str, Any]:
        return self._asdict()

    @classmethod
    def from_json(cls, obj: dict[str, Any]) -> NodeResult:
        return cls(**{name: value for name, value in obj.items() if name in cls._fields})


def write_report(attempt: AttemptDir, outcome: NodeResult, log: tee.Log) -> None:
    """Write ``end.json``. On a disk that stays full it goes to the batch script's output instead."""
    acked = attempt.ack.exists() or outcome.early
    message = outcome.message or (_service_end(attempt) if outcome.good else "")
    if log.lost:
        message = "; ".join(filter(None, [message, f"{log.lost} log lines were lost: {log.failure}"]))
    report = EndReport(
        finished=outcome.good and not acked,
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        acked=acked,
        stop_reason=outcome.stop_reason or _stop_reason(attempt, outcome.good),
        phase=outcome.phase,
        message=message,
        node=outcome.node,
        tail=outcome.tail,
        at=time.time(),
    ).to_json()
    for remaining in reversed(range(WRITE_TRIES)):
        try:
            write_json(attempt.end, sealed(report))
            return
        except OSError as error:
            if not remaining:
                tee.write_to_standard_error(f"dethpc: the end report could not be written: {error}: {report}\n")
                return
            time.sleep(1)


def _stop_reason(attempt: AttemptDir, good: bool) -> Optional[str]:
    """Why the attempt was asked to stop; user code's own word where a signal came to it alone, and it left well."""
    try:
        request = attempt.stop_request()
        if request is not None:
            return request.reason or None
        acknowledged = (read_json(attempt.ack) or {}).get("reason") if good else None
        return str(acknowledged) if acknowledged else None
    except (OSError, RunDirError):
        return None


def _service_end(attempt: AttemptDir) -> str:
    """Why a notebook, TensorBoard or shell ended by itself; "" for other programs."""
    try:
        state = attempt.service_state()
    except (OSError, RunDirError):
        return ""
    return "" if state is None else state.ended


def of_process(
    phase: str, status: int, command: Union[str, Sequence[str]], env: Mapping[str, str], log: tee.Log
) -> NodeResult:
    """The outcome of a process that ended with wait status ``status``. ``command`` as the user wrote it: a string
    went through a shell."""
    code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    number = signal_of(code)
    message = "" if code == 0 else _reason(code, number, command, env, log)
    return NodeResult(phase, code, number, message, list(log.tail) if code else [], at=time.time())


def of_worker(failure: Mapping[str, Any], code: int, where: str, log: tee.Log) -> NodeResult:
    """The outcome of an entrypoint that ended with ``code``, when a launcher has told which worker failed first, or why
    it started none. ``where`` names the node, or is empty."""
    rank, at = failure.get("rank"), failure.get("at")
    if failure.get("phase") == "launch":
        message = failure.get("message") or _complaint(log) or f"exit code {code}"
        return NodeResult("launch", code, None, message, list(log.tail), at=at)
    code = failure.get("exit_code") or code
    number = signal_of(code)
    exceptions = [(whose, text) for whose, text in log.exceptions if whose == rank]
    tail = log.tail_of(rank)
    why = tee.cause(exceptions) or _last_word(code, tail) or _complaint_of(number, rank, log)
    message = f"rank {rank}{where}: {_plain_reason(code, number, why)}"
    return NodeResult("train", code, number, message, tail, at=at, secondary=bool(failure.get("secondary")))


def _complaint(log: tee.Log) -> str:
    """The line in which a program says which option it does not know."""
    lines = [text.strip() for text in log.tail if re.search(r"\berror\b|unknown|unrecognized|invalid", text, re.I)]
    lines = [text for text in lines if not text.startswith("ERROR: ")] or lines  # the launcher only passes it on
    return lines[-1] if lines else ""


def of_start(phase: str, error: OSError, command: Sequence[str], log: tee.Log) -> NodeResult:
    """The outcome of a process that could not be started, with a shell's exit codes."""
    if error.filename is not None and os.fspath(error.filename) != command[0]:  # of subprocess: the working directory
        message, code = f"entrypoint cannot be started in {error.filename}: {error.strerror}", 126
    elif isinstance(error, FileNotFoundError):
        message, code = f"entrypoint not found: {command[0]}", 127
    elif isinstance(error, PermissionError):
        message, code = f"entrypoint is not executable: {command[0]}", 126
    else:
        message, code = f"entrypoint cannot be started: {error}", 126
    log.say("ERROR", message)
    return NodeResult(phase, code, None, message, list(log.tail))


def _reason(
    code: int, number: Optional[int], command: Union[str, Sequence[str]], env: Mapping[str, str], log: tee.Log
) -> str:
    if code in (126, 127):
        missing = _named_by_shell(log) or ("" if _last_word(code, log.tail) else _missing_word(command, env))
        if missing:
            return f"entrypoint {'not found' if code == 127 else 'is not executable'}: {missing}"
    return _plain_reason(
        code, number, tee.cause(log.exceptions) or _last_word(code, log.tail) or _complaint_of(number, None, log)
    )


def _complaint_of(number: Optional[int], rank: Optional[int], log: tee.Log) -> str:
    """What a program says that fails without a traceback: argparse, a shell. One that was killed says nothing."""
    return "" if number is not None else log.complaint(rank)


def _plain_reason(code: int, number: Optional[int], exception: str) -> str:
    if number is not None and not exception:
        return killed_by(number)
    return f"exit code {code}: {exception}" if exception else f"exit code {code}"


def _named_by_shell(log: tee.Log) -> str:
    """The command that the entrypoint's shell complained of: "sh: 1: pyhton3: not found", "bash: line 1: x: Permission denied".
    What a script misses ("./job.sh: line 6: conda: command not found") is not the entrypoint."""
    for text in reversed(log.tail):
        match = re.match(r"(?:\S*/)?\w*sh: (?:.*[\s:])?([^\s:]+): (?:(?:command )?not found|Permission denied)$", text)
        if match:
            return match.group(1)
    return ""


def _last_word(code: int, tail: Iterable[str]) -> str:
    """What python, a shell or one of our own programs says, without a traceback, of something that cannot be started."""
    pattern = r"(?:\S*/)?(?:python[\d.]*|\w*sh): .*(?:No such file|No module named \S+$)|(?:garbage|harness|image|wrap_rank): "
    if code in (126, 127):
        pattern += r"|.*\S: (?:(?:command )?not found|Permission denied)$"
    elif code not in (1, 2):
        return ""
    return next((text for text in reversed(list(tail)) if re.match(pattern, text)), "")


def _missing_word(command: Union[str, Sequence[str]], env: Mapping[str, str]) -> str:
    try:
        argv = shlex.split(command) if isinstance(command, str) else list(command)
    except ValueError:
        return ""
    argv = [word for word in argv if not re.match(r"\w+=", word)]
    return argv[0] if argv and shutil.which(argv[0], path=env.get("PATH")) is None else ""
