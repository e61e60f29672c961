"""``det completion``, and completion of values that only the master knows: ids of experiments, trials, checkpoints, jobs, nodes,
pools, templates, tokens and webhooks; names of experiments, once their beginning is typed, and of users.

It requests them from a running master, never starts one, takes at most ``_PATIENCE``, and prints nothing on failure: a shell would
show the message in the middle of the command line.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Optional

import click
from click import shell_completion
from click.shell_completion import CompletionItem

from dethpc.cli import output

if TYPE_CHECKING:
    from dethpc.client import Session
from click.shell_completion import get_completion_class

_PATIENCE = 2.0  # seconds; who pressed TAB goes on typing sooner than that
_RECENT = 50  # experiments
_LATEST = 4  # experiments whose trials or checkpoints are offered

Completions = Iterator[tuple[Any, str]]  # and what each is


def _experiments(session: Session) -> Completions:
    from dethpc.client.nouns import experiments

    for one in experiments.listing(session, newest_first=True, limit=_RECENT)["experiments"]:
        yield one["id"], f"{one['name']}, {output.standing(one)}"


def _names(session: Session) -> Completions:
    """Those that one experiment alone has, for only they take the place of an id."""
    from dethpc.client.nouns import experiments

    rows = experiments.listing(session, newest_first=True, limit=_RECENT)["experiments"]
    every = [one["name"] for one in rows]
    for one in rows:
        if every.count(one["name"]) == 1 and one["name"].isprintable():
            yield one["name"], f"{one['id']}, {output.standing(one)}"


def _users(session: Session) -> Completions:
    from dethpc.client.nouns import users

    for user in users.users(session):
        yield user["username"], user.get("displayName") or ""


def _tokens(session: Session) -> Completions:
    from dethpc.client.nouns import tokens

    for token in tokens.tokens(session):
        yield token["id"], token.get("description") or ""


def _trials(session: Session) -> Completions:
    from dethpc.client.nouns import experiments

    for one in experiments.listing(session, newest_first=True, limit=_LATEST)["experiments"]:
        for trial in experiments.trials(session, one["id"], descending=True, limit=_RECENT):
            yield trial["id"], f"{one['name']}, {output.standing(trial)}"


def _checkpoints(session: Session) -> Completions:
    from dethpc.client.nouns import experiments

    for one in experiments.listing(session, newest_first=True, limit=_LATEST)["experiments"]:
        for checkpoint in experiments.checkpoints(session, one["id"])[-_RECENT:]:
            yield checkpoint["uuid"], one["name"]


def _jobs(session: Session) -> Completions:
    from dethpc.client.nouns import jobs

    for job in jobs.listing(session):
        yield job["jobId"], job["name"]


def _nodes(session: Session) -> Completions:
    from dethpc.client.nouns import cluster

    for agent in cluster.agents(session):
        yield agent["id"], ""


def _pools(session: Session) -> Completions:
    from dethpc.client.nouns import cluster

    for pool in cluster.resource_pools(session):
        yield pool["name"], pool.get("description") or ""


def _webhooks(session: Session) -> Completions:
    from dethpc.client.nouns import webhooks

    for webhook in webhooks.webhooks(session):
        yield str(webhook["id"]), webhook["name"]


def _templates(session: Session) -> Completions:
    from dethpc.client.nouns import templates

    for template in templates.templates(session):
        yield template["name"], ""


def _groups(session: Session) -> Completions:
    from dethpc.client.nouns import roles

    for group in roles.groups(session):
        yield group["name"], ""


def _roles(session: Session) -> Completions:
    from dethpc.client.nouns import roles

    for role in roles.roles(session):
        yield role["name"], ""


Source = Callable[["Session"], Completions]

_OF_PARAMETER: dict[str, list[Source]] = {
    "experiment_id": [_experiments, _names],
    "trial_id": [_trials],
    "uuid": [_checkpoints],
    "uuids": [_checkpoints],
    "job_id": [_jobs],
    "ahead_of": [_jobs],
    "behind_of": [_jobs],
    "node": [_nodes],
    "nodes": [_nodes],
    "resource_pool": [_pools],
    "pools": [_pools],
    "username": [_users],
    "template": [_templates],
    "template_name": [_templates],
    "group_name": [_groups],
    "group_name_to_assign": [_groups],
    "old_group_name": [_groups],
    "role_name": [_roles],
    "username_to_assign": [_users],
    "token_id": [_tokens],
    "webhook_id": [_webhooks],
    "token_ids": [_tokens],
}
"""By the name that a command has for its parameter."""


def _sources(context: click.Context, parameter: click.Parameter) -> list[Source]:
    name, noun = parameter.name or "", context.parent.info_name if context.parent else ""
    if name in ("ids", "id"):
        return [_trials] if noun == "trial" else [_experiments, _names]
    if (name, noun) == ("name", "resource-pool"):
        return [_pools]
    return _OF_PARAMETER.get(name, [])


def from_master(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What may stand there and begins with ``incomplete``; of ``3,5`` the last part is completed. Raises nothing."""
    sources = _sources(context, parameter)
    if not sources:
        return []
    before, comma, begun = incomplete.rpartition(",")
    items: list[CompletionItem] = []

    def ask() -> None:
        with contextlib.suppress(Exception):  # no master, no permission, an older one: no words
            options = context.find_root().params
            session = _session(options.get("master"), options.get("user"))
            if session is None:
                return
            for source in sources:
                if source is _names and not incomplete:
                    continue  # the same experiments have been offered by id
                done, rest = ("", incomplete) if source is _names else (before + comma, begun)
                for value, what in source(session):
                    if str(value).startswith(rest):
                        items.append(CompletionItem(done + output.plain(value), help=output.plain(what) or None))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    return list(items)


def _session(master: Optional[str], user: Optional[str]) -> Optional[Session]:
    from dethpc.cli.connect import home_only
    from dethpc.client import Session, master_url
    from dethpc.client.address import canonical
    from dethpc.client.login import token_at

    url = canonical(master) if master else master_url(home_only())
    return Session(url, token_at(url, user), timeout=_PATIENCE, retries=0) if url else None


class _Completer(shell_completion.ShellComplete):
    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        items: list[CompletionItem] = super().get_completions(args, incomplete)
        if items:
            return items
        context = shell_completion._resolve_context(self.cli, self.ctx_args, self.prog_name, args)
        about, begun = shell_completion._resolve_incomplete(context, args, incomplete)
        return from_master(context, about, begun) if isinstance(about, click.Parameter) else []


class _Bash(_Completer, shell_completion.BashComplete):
    """Bash takes words as they are to stand on its line; zsh and fish quote by themselves."""

    source_template = shell_completion.BashComplete.source_template.replace("read type", "read -r type")

    def format_completion(self, item: CompletionItem) -> str:
        if item.type == "plain":
            argv, number = os.environ["COMP_WORDS"].split("\n"), int(os.environ["COMP_CWORD"])
            item.value = _quoted(str(item.value), argv[number][:1] if number < len(argv) else "")
        return str(super().format_completion(item))


def _quoted(word: str, begun: str) -> str:
    """``word`` for a line of bash on which it begins with ``begun``, if that is a quotation mark."""
    if begun == "'":
        return word.replace("'", r"'\''")
    return re.sub(r'(["$`\\])' if begun == '"' else r"([^\w@%+=./,-])", r"\\\1", word)


class _Zsh(_Completer, shell_completion.ZshComplete):
    pass


class _Fish(_Completer, shell_completion.FishComplete):
    # only the first comma parts: ``3,5`` has one of its own
    source_template = shell_completion.FishComplete.source_template.replace('string split ","', 'string split -m 1 ","')


def register() -> None:
    """Let the shells ask the master, too."""
    for name, completion_class in (("bash", _Bash), ("zsh", _Zsh), ("fish", _Fish)):
        shell_completion.add_completion_class(completion_class, name)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a completion script for your shell.

    \b
    bash: det completion bash > ~/.local/share/bash-completion/completions/det
    zsh:  det completion zsh > "${fpath[1]}/_det"
    fish: det completion fish > ~/.config/fish/completions/det.fish
    """
    from dethpc.cli import complete, main

    complete.register()
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    click.echo(completion_class(main, {}, "det", "_DET_COMPLETE").source())
