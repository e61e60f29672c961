"""``det completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


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
