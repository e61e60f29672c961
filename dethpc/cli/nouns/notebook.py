"""``det notebook``: JupyterLab on a node of the cluster."""

from __future__ import annotations

from typing import Any

import click

from dethpc.cli import launched, output
from dethpc.cli.group import LazyGroup
from dethpc.cli.launched import Noun

NOTEBOOK = Noun("notebook", "notebooks", "notebook")
_ANSWERS = "api"


@click.group(cls=LazyGroup, aliases={"ls": "list"})
def notebook() -> None:
    """Run JupyterLab on a node of the cluster, as a job in the queue."""


@notebook.command()
@launched.launch_options
@click.option("--preview", is_flag=True, help="Print the configuration with all defaults, and start nothing.")
@launched.no_browser
@output.as_json
def start(detach: bool, preview: bool, no_browser: bool, as_json: bool, **options: Any) -> None:
    """Start JupyterLab in the environment of this shell, and open it.

    Its files stay in the folder of the task, DETHPC_HOME/tasks/ID, or are those of work_dir, a folder of yours. It ends after
    idle_timeout without use, if that is set; notebook_idle_type says what counts as use.
    """
    answer = launched.launch(NOTEBOOK, options, {"preview": preview})
    if preview:
        output.print_config(answer["config"], as_json)
    elif as_json:
        output.print_json(answer)
    elif detach:
        output.echo(answer["notebook"]["id"])
    else:
        launched.show(NOTEBOOK, answer["notebook"], _ANSWERS, browser=not no_browser)


launched.add_open(notebook, NOTEBOOK, _ANSWERS)
launched.add_commands(notebook, NOTEBOOK)
