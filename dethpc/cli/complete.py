"""Words for TAB that only the master knows: ids and names of experiments, trials, checkpoints, jobs, nodes and pools.

It asks a master that runs, starts none, takes no longer than ``_PATIENCE``, and says nothing when it cannot: a shell shows what is
printed here in the middle of what somebody types.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Optional

import click
from click import shell_completion
from click.shell_completion import CompletionItem

from dethpc.cli import output

if TYPE_CHECKING:
    from dethpc.client import Session

_PATIENCE = 2.0  # seconds; who pressed TAB goes on typing sooner than that
_RECENT = 50  # experiments
_LATEST = 4  # experiments whose trials or checkpoints are offered

Words = Iterator[tuple[Any, str]]  # and what each is


def _experiments(session: Session) -> Words:
    from dethpc.client import experiments

    for one in experiments.listing(session, newest_first=True, limit=_RECENT)["experiments"]:
        yield one["id"], f"{one['name']}, {one['state'].removeprefix('STATE_')}"


def _trials(session: Session) -> Words:
    from dethpc.client import experiments

    for one in experiments.listing(session, newest_first=True, limit=_LATEST)["experiments"]:
        for trial in experiments.trials(session, one["id"], descending=True, limit=_RECENT):
            yield trial["id"], f"{one['name']}, {trial['state'].removeprefix('STATE_')}"


def _checkpoints(session: Session) -> Words:
    from dethpc.client import experiments

    for one in experiments.listing(session, newest_first=True, limit=_LATEST)["experiments"]:
        for checkpoint in experiments.checkpoints(session, one["id"])[-_RECENT:]:
            yield checkpoint["uuid"], one["name"]


def _jobs(session: Session) -> Words:
    from dethpc.client import jobs

    for job in jobs.listing(session):
        yield job["jobId"], job["name"]


def _nodes(session: Session) -> Words:
    from dethpc.client import cluster

    for agent in cluster.agents(session):
        yield agent["id"], ""


def _pools(session: Session) -> Words:
    from dethpc.client import cluster

    for pool in cluster.resource_pools(session):
        yield pool["name"], pool.get("description") or ""


_OF_PARAMETER: dict[str, Callable[[Session], Words]] = {
    "experiment_id": _experiments,
    "trial_id": _trials,
    "uuid": _checkpoints,
    "uuids": _checkpoints,
    "job_id": _jobs,
    "ahead_of": _jobs,
    "behind_of": _jobs,
    "node": _nodes,
    "resource_pool": _pools,
    "pools": _pools,
}
"""By the name that a command has for its parameter."""


def _source(context: click.Context, parameter: click.Parameter) -> Optional[Callable[[Session], Words]]:
    name, noun = parameter.name or "", context.parent.info_name if context.parent else ""
    if name in ("ids", "id"):
        return _trials if noun == "trial" else _experiments
    if (name, noun) == ("name", "resource-pool"):
        return _pools
    return _OF_PARAMETER.get(name)


def from_master(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What may stand there and begins with ``incomplete``; of ``3,5`` the last part is completed. Raises nothing."""
    source = _source(context, parameter)
    if source is None:
        return []
    before, comma, begun = incomplete.rpartition(",")
    found: list[CompletionItem] = []

    def ask() -> None:
        with contextlib.suppress(Exception):  # no master, no permission, an older one: no words
            session = _session(context.find_root().params.get("master"))
            for value, what in source(session) if session else ():
                if str(value).startswith(begun):
                    word = before + comma + output.plain(value)
                    found.append(CompletionItem(word, help=output.plain(what) or None))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    return list(found)


def _session(master: Optional[str]) -> Optional[Session]:
    from dethpc.cli.connect import home_only
    from dethpc.client import Session, master_url, token
    from dethpc.client.address import canonical

    url = canonical(master) if master else master_url(home_only())
    return Session(url, token(url), timeout=_PATIENCE, retries=0) if url else None


class _Completer(shell_completion.ShellComplete):
    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        found: list[CompletionItem] = super().get_completions(args, incomplete)
        if found:
            return found
        context = shell_completion._resolve_context(self.cli, self.ctx_args, self.prog_name, args)
        about, begun = shell_completion._resolve_incomplete(context, args, incomplete)
        return from_master(context, about, begun) if isinstance(about, click.Parameter) else []


def register() -> None:
    """Let every shell that click knows ask the master, too."""
    for name in ("bash", "zsh", "fish"):
        known = shell_completion.get_completion_class(name)
        assert known is not None
        shell_completion.add_completion_class(type(f"Det{known.__name__}", (_Completer, known), {}), name)
