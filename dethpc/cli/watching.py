"""``--watch``: redraws a list in place on the terminal, periodically."""

from __future__ import annotations

import io
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any

import click

from dethpc.cli import output
from dethpc.client.patience import patiently


class _Screen(io.StringIO):
    """What a list writes for a terminal, kept until it is whole: a screen that is cleared first would flicker."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return True


def watch(draw: Callable[[], Any], seconds: float) -> None:
    """Call ``draw`` every so many seconds until Ctrl-C. Raises click.UsageError where there is no terminal."""
    if not sys.stdout.isatty():
        raise click.UsageError(
            "--watch draws on a terminal; in a pipe or a script, ask again with a loop: while sleep 5"
        )
    try:
        while True:
            output.redraw(_crop(patiently(lambda: _drawn(draw))))
            time.sleep(seconds)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(130) from None


def _drawn(draw: Callable[[], Any]) -> str:
    terminal = sys.stdout
    screen = _Screen(terminal.encoding or "utf-8")
    sys.stdout = screen
    try:
        draw()
    finally:
        sys.stdout = terminal
    return screen.getvalue()


def _crop(text: str) -> str:
    """The lines that there is room for: what scrolls away cannot be drawn over."""
    lines, room = text.splitlines(), shutil.get_terminal_size().lines - 2
    if len(lines) <= room:
        return text
    return "\n".join([*lines[:room], f"... and {len(lines) - room} more lines", ""])
