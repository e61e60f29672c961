"""Layout of a run's directory."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Iterable, Optional, Union

from dethpc.errors import RunDirError
from dethpc.rundir.files import names, read_json

if TYPE_CHECKING:  # a job that claims its run waits for what is imported, and needs none of these
    from dethpc.domain.attempts.end_report import EndReport
    from dethpc.domain.attempts.log_policies import LogMatch
    from dethpc.domain.attempts.service_state import ServiceState
    from dethpc.domain.attempts.stopping import StopRequest
    from dethpc.domain.attempts.usage import NodeUse
    from dethpc.rundir.started import Started


def _numbers(names: Iterable[str], prefix: str = "", suffix: str = "") -> set[int]:
    """The numbers between ``prefix`` and ``suffix`` in those names that are such; a superscript is a digit, too, and is not one."""
    inner = [
        name[len(prefix) : len(name) - len(suffix)]
        for name in names
        if name.startswith(prefix) and name.endswith(suffix)
    ]
    return {int(name) for name in inner if name.isascii() and name.isdigit()}


class AttemptDir:
    """``attempts/<k>``: all that one start of the run wrote, and nothing that another start may write."""

    def __init__(self, path: Union[str, os.PathLike[str]]) -> None:
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"AttemptDir({str(self.path)!r})"

    @property
    def k(self) -> int:
        return int(self.path.name)

    @property
    def run(self) -> RunDir:
        return RunDir(self.path.parents[1])

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def worker_journals(self) -> Path:
        """The directory of metrics that did not come from the chief; most attempts have none."""
        return self.path / "beside"

    def journal_of(self, rank: int) -> Path:
        """The metrics of another worker than the chief, in a journal of its own."""
        return self.worker_journals / f"rank-{rank}.jsonl"

    @property
    def master_journal(self) -> Path:
        """The master's journal of the metrics that counted and did not come from the chief: other workers', or posted."""
        return self.worker_journals / "taken.jsonl"

    def ranks(self) -> list[int]:
        """Ranks of the workers that have a journal of their own, in order."""
        return sorted(_numbers(names(self.worker_journals), "rank-", ".jsonl"))

    @property
    def started(self) -> Path:
        return self.path / "started.json"

    @property
    def stop(self) -> Path:
        """A ``StopRequest``: the attempt is asked to checkpoint and end."""
        return self.path / "stop.json"

    @property
    def terminated(self) -> Path:
        """Empty: the batch script itself has got TERM, not the steps alone."""
        return self.path / "terminated"

    @property
    def ack(self) -> Path:
        """``{"at"}``: user code has been told to stop."""
        return self.path / "ack.json"

    @property
    def end(self) -> Path:
        """The ``EndReport``; its absence after the job's end means that nobody lived to write it."""
        return self.path / "end.json"

    @property
    def relay(self) -> Path:
        """``{"port"}``: where the relay to the task's services listens on the first node. Absent where it has none."""
        return self.path / "relay.json"

    @property
    def service(self) -> Path:
        """The ``ServiceState`` of a notebook, TensorBoard or shell. Absent until it answers."""
        return self.path / "service.json"

    def service_state(self) -> Optional[ServiceState]:
        """None: it does not answer yet. Raises: RunDirError when the file is damaged; OSError."""
        from dethpc.domain.attempts.service_state import ServiceState

        state = read_json(self.service)
        return None if state is None else ServiceState.from_json(state)

    def start_report(self) -> Optional[Started]:
        """None: it has not started yet. Raises: RunDirError when the file is damaged; OSError."""
        from dethpc.rundir.started import Started

        report = read_json(self.started)
        return None if report is None else Started.from_json(report)

    def end_report(self) -> Optional[EndReport]:
        """None: nobody wrote one, or not yet. Raises: RunDirError when the file is damaged; OSError."""
        from dethpc.domain.attempts.end_report import EndReport

        report = read_json(self.end)
        return None if report is None else EndReport.from_json(report)

    def stop_request(self) -> Optional[StopRequest]:
        """None: nobody asked the attempt to stop. Raises: RunDirError when the file is damaged; OSError."""
        from dethpc.domain.attempts.stopping import StopRequest

        request = read_json(self.stop)
        return None if request is None else StopRequest.from_json(request)

    def failure(self, node: int) -> Path:
        """``{"phase", "rank", "exit_code", "message", "at"}``: what a launcher on this node saw fail first."""
        return self.path / f"failure-{node}.json"

    def usage(self, node: int) -> Path:
        """The ``NodeUse`` of this node, written now and then, and at the end."""
        return self.path / f"usage-{node}.json"

    def node_uses(self, nodes: int) -> list[NodeUse]:
        """What each of so many nodes has said of its use, as far as it can be read. Raises: OSError."""
        from dethpc.domain.attempts.usage import NodeUse

        uses = []
        for node in range(nodes):
            with suppress(RunDirError):
                obj = read_json(self.usage(node))
                uses += [] if obj is None else [NodeUse.from_json(obj)]
        return uses

    def matched(self, node: int) -> Path:
        """``{"matches"}``: the ``LogMatch`` of each log policy that a line on this node matched."""
        return self.path / f"matched-{node}.json"

    def log_matches(self, nodes: int) -> list[LogMatch]:
        """What so many nodes found in their logs, as far as it can be read. Raises: OSError."""
        from dethpc.domain.attempts.log_policies import LogMatch

        matched: list[LogMatch] = []
        for node in range(nodes):
            with suppress(RunDirError):
                matches = (read_json(self.matched(node)) or {}).get("matches")
                listed = matches if isinstance(matches, list) else []
                matched += [LogMatch.from_json(match) for match in listed if isinstance(match, dict)]
        return matched

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def log(self, node: int) -> Path:
        return self.logs / f"node-{node}.log"

    def info(self, node: int) -> Path:
        """What ``get_cluster_info()`` on this node is made of. Holds the run's token: 0600."""
        return self.path / f"info-{node}.json"

    def nodes_with_logs(self) -> list[int]:
        """Ranks of the nodes that have written a log, in order."""
        return sorted(_numbers(names(self.logs), "node-", ".log"))

    def make(self) -> None:
        """Create the directory and its ``logs``, 0700. Does nothing where they exist."""
        self.logs.mkdir(mode=0o700, parents=True, exist_ok=True)


class RunDir:
    """``runs/<run>``: one submission of a trial to the scheduler."""

    def __init__(self, path: Union[str, os.PathLike[str]]) -> None:
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"RunDir({str(self.path)!r})"

    @property
    def spec(self) -> Path:
        return self.path / "spec.json"

    @property
    def claim(self) -> Path:
        return self.path / "claim"

    @property
    def closed(self) -> Path:
        """``{"intent": "stop"|"kill", "reason", "at"}``: the master wants no further start of this run."""
        return self.path / "closed"

    def kill(self) -> Optional[str]:
        """Why the master ends this run at once, "" where it gave no reason; None: it does not. Raises: RunDirError, OSError."""
        closure = read_json(self.closed) or {}
        return str(closure.get("reason") or "") if closure.get("intent") == "kill" else None

    @property
    def script(self) -> Path:
        return self.path / "job.sbatch"

    @property
    def log(self) -> Path:
        """Output of the batch script itself."""
        return self.path / "slurm.log"

    @property
    def over(self) -> Path:
        """There when the job is done with this run, and looks in ``next`` for what else it may do."""
        return self.path / "over"

    @property
    def next(self) -> Path:
        """``{"script"}``: the batch script of the run that follows in the same job; null: none does. The first word stands."""
        return self.path / "next"

    def waiting(self, k: int) -> Path:
        """Log lines in which the master says why attempt ``k`` has not started yet."""
        return self.path / f"waiting-{k}.log"

    def attempt(self, k: int) -> AttemptDir:
        return AttemptDir(self.path / "attempts" / str(k))

    def attempts(self) -> list[int]:
        """Numbers of the attempts that have a directory, in order."""
        return sorted(_numbers(names(self.path / "attempts")))

    def attempts_with_logs(self) -> list[int]:
        """Numbers of the attempts that have a directory, or are waited for with a word of the master's, in order."""
        return sorted({*self.attempts(), *_numbers(names(self.path), "waiting-", ".log")})

    def make(self) -> None:
        """Create the directory, 0700. Does nothing where it exists."""
        (self.path / "attempts").mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(self.path, 0o700)
