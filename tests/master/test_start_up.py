"""What a master loads before its first answer: its users wait for it whenever it was restarted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

NOT_FOR_THIS = (
    "alembic",
    "sqlalchemy.dialects.postgresql",
    "psycopg",
    "numpy",
    "re2",
    "tsdownsample",
    "cryptography",
    "rich",
    "requests",
    "urllib.request",
    "dethpc.cli",
    "dethpc.core",
    "dethpc.doctor",
    "dethpc.simulator",
)


def test_a_master_loads_what_its_first_answer_needs_also_in_an_empty_home(tmp_path: Path) -> None:
    code = (
        "import sys, dethpc.master.daemon, dethpc.master.serve, dethpc.master.http.nouns.experiments, dethpc.state\n"
        f"dethpc.state.open_store({str(tmp_path / 'state.db')!r}).close()\n"
        f"print([name for name in {NOT_FOR_THIS!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
