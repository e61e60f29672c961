"""docs/from-determined.md has every command that is not here, with what ``det`` itself says of it."""

from __future__ import annotations

import re
from pathlib import Path

from dethpc.cli import from_determined

PAGE = (Path(__file__).parents[2] / "docs" / "from-determined.md").read_text()


def test_every_command_that_is_not_here_is_in_the_table() -> None:
    chapter = PAGE.partition("## Commands\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in chapter.splitlines() if line.startswith("| `det ")]
    table = {name: sentence for names, sentence in rows for name in re.findall(r"`det ([^`]+)`", names)}
    assert table == from_determined._SENTENCES
