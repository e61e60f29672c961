"""Whether Slurm's commands print lines that are not Slurm's, as a site's scripts round them do."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts, Slurm
from dethpc.doctor.finding import Finding, note, ok


def check(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    if not slurm.banners:
        yield ok("Slurm's commands print nothing but Slurm's own lines")
        return
    by_line: dict[str, list[str]] = {}
    for command, line in slurm.banners.items():
        by_line.setdefault(line, []).append(command)
    for line, commands in by_line.items():
        yield note(
            f"{', '.join(commands)} print{'s' if len(commands) == 1 else ''} lines that are not Slurm's: {line[:120]!r}",
            "reads Slurm's own lines and skips these",
            "let the site's script print only to a terminal: [ -t 1 ]",
        )
