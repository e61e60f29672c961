"""Experiments as arguments of commands: ``ID`` is one, ``IDS`` are several."""

from __future__ import annotations

import click

ID = click.argument("experiment_id", metavar="ID", type=int)


def _ids(value: str) -> list[int]:
    """``3`` or ``3,5,7``."""
    try:
        return [int(part) for part in value.split(",")]
    except ValueError:
        raise click.BadParameter(f"found {value!r}; allowed: experiment ids, such as 3 or 3,5,7") from None


IDS = click.argument("ids", metavar="ID...", type=_ids, nargs=-1, required=True)
