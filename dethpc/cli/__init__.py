"""``det``, the command line. One file per noun; a noun's file is imported when the noun is used, so that ``det`` starts at once.

Exit codes: 0 done; 1 the request failed (the reason is on stderr); 2 the command line itself is wrong; 130 interrupted with ctrl-C.
Commands with more to say (``det experiment wait``) document it in their ``--help``.
"""

# ruff: noqa: E402
from __future__ import annotations

import atexit
import gc

# What a command imports is not looked through for garbage again and again, nor once more at its end; most end before there is any.
gc.set_threshold(50_000)
atexit.register(gc.freeze)

import os
from typing import Optional

import click

import dethpc
from dethpc.cli.group import LazyGroup, Settings

__all__ = ["main"]


@click.group(
    cls=LazyGroup,
    lazy={
        "experiment": ("dethpc.cli.nouns.experiment:experiment", "Create, watch and control experiments."),
        "trial": ("dethpc.cli.nouns.trial:trial", "Inspect single trials, their metrics and logs."),
        "command": ("dethpc.cli.nouns.command:command", "Run programs on nodes of the cluster."),
        "notebook": ("dethpc.cli.nouns.notebook:notebook", "Run JupyterLab on a node of the cluster."),
        "shell": ("dethpc.cli.nouns.shell:shell", "Get shells on nodes of the cluster."),
        "tensorboard": ("dethpc.cli.nouns.tensorboard:tensorboard", "Run TensorBoard over experiments and trials."),
        "task": ("dethpc.cli.nouns.task:task", "Show what runs on the cluster; create tasks that can be paused."),
        "slurm": ("dethpc.cli.nouns.slurm:slurm", "Find the trial of a Slurm job."),
        "job": ("dethpc.cli.nouns.job:job", "Show and change the order of the queue."),
        "checkpoint": ("dethpc.cli.nouns.checkpoint:checkpoint", "List, describe, download and delete checkpoints."),
        "image": ("dethpc.cli.nouns.image:image", "List, pull and remove container images."),
        "config": ("dethpc.cli.nouns.config_cmd:config", "Work with configuration files."),
        "preview-search": (
            "dethpc.cli.nouns.preview:preview_search",
            "Show how many trials a search trains, and for how long.",
        ),
        "resource-pool": ("dethpc.cli.nouns.pool:pool", "Inspect resource pools."),
        "slot": ("dethpc.cli.nouns.slot:slot", "Inspect slots (GPUs, or shares of a CPU node)."),
        "agent": ("dethpc.cli.nouns.agent:agent", "Inspect the compute nodes."),
        "master": ("dethpc.cli.nouns.master:master", "Start, stop and inspect the master."),
        "doctor": ("dethpc.cli.nouns.doctor:doctor", "Check this site and this installation for problems."),
        "tunnel": ("dethpc.cli.nouns.tunnel:tunnel", "Reach the ports of a task by TCP."),
        "ui": ("dethpc.cli.nouns.ui:ui", "Open the web pages in a browser."),
        "user": ("dethpc.cli.nouns.user:user", "Manage who may log in to the master."),
        "user-group": ("dethpc.cli.nouns.user_group:user_group", "Manage groups of users."),
        "rbac": ("dethpc.cli.nouns.rbac:rbac", "Manage roles: what users may do."),
        "token": ("dethpc.cli.nouns.token:token", "Create and revoke access tokens."),
        "model": ("dethpc.cli.nouns.model:model", "Register checkpoints as versions of models."),
        "workspace": ("dethpc.cli.nouns.workspace:workspace", "Group projects, with defaults for their experiments."),
        "project": ("dethpc.cli.nouns.project:project", "Group experiments."),
        "template": ("dethpc.cli.nouns.template:template", "Manage templates of configurations."),
        "webhook": (
            "dethpc.cli.nouns.webhook:webhook",
            "Report what happens to experiments by HTTP, to Slack or by mail.",
        ),
        "resources": ("dethpc.cli.nouns.resources:resources", "Print which slots were held when, and for whom."),
        "config-policies": (
            "dethpc.cli.nouns.config_policies:config_policies",
            "Show and set what every configuration must be like.",
        ),
        "deploy": ("dethpc.cli.nouns.deploy:deploy", "Run a private Slurm for trying and testing."),
        "run-local": ("dethpc.cli.nouns.run_local:run_local", "Run a whole experiment on this machine."),
        "simulate": ("dethpc.cli.nouns.simulate:simulate", "Estimate what a search costs before it runs."),
        "version": ("dethpc.cli.nouns.version:version", "Show the versions of det and of the master."),
        "help": ("dethpc.cli.group:show_help", "Show the help of a command."),
        "completion": ("dethpc.cli.complete:completion", "Print a shell completion script."),
    },
    aliases={
        "e": "experiment",
        "exp": "experiment",
        "t": "trial",
        "c": "checkpoint",
        "cmd": "command",
        "nb": "notebook",
        "tb": "tensorboard",
        "j": "job",
        "rp": "resource-pool",
        "s": "slot",
        "a": "agent",
        "d": "deploy",
        "u": "user",
        "tkn": "token",
        "m": "model",
        "w": "workspace",
        "p": "project",
        "tpl": "template",
        "cp": "config-policies",
        "res": "resources",
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option(
    "-m",
    "--master",
    metavar="URL",
    envvar="DET_MASTER",
    help="The master's address [DET_MASTER]. Default: your own, started if none is running.",
)
@click.option("-u", "--user", metavar="NAME", envvar="DET_USER", help="Act as this user [DET_USER].")
@click.version_option(dethpc.__version__, "-v", "-V", "--version", message="det %(version)s")
@click.pass_context
def main(ctx: click.Context, master: Optional[str], user: Optional[str]) -> None:
    """Deep-learning training on Slurm.

    \b
    A first experiment:
      det experiment create config.yaml . --follow
      det experiment list
      det experiment wait 1
    """
    ctx.obj = Settings(master=master or None, user=user or None)


if "_DET_COMPLETE" in os.environ:
    from dethpc.cli import complete

    complete.register()
