"""TAB completes what only the master knows, and never gets in the way of who types."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import LONG_ENOUGH

# What bash itself does with the script that det prints: the words so far, and a TAB at their end.
TAB = """
eval "$(det completion bash)"
COMP_WORDS=({words}) COMP_CWORD=$(({count} - 1))
_det_completion det
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def tab(environment: dict[str, str], master: Any, tmp_path: Path) -> Any:
    (tmp_path / "det").write_text(f'#!/bin/sh\nexec {sys.executable} -m dethpc.cli "$@"\n')
    (tmp_path / "det").chmod(0o755)
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"

    def press(*words: str, url: str = master.url) -> list[str]:
        script = TAB.format(words=" ".join(repr(word) for word in ("det", *words)), count=len(words) + 1)
        done = subprocess.run(
            ["bash", "-c", script],
            env={**environment, "DET_MASTER": url},
            capture_output=True,
            text=True,
            timeout=LONG_ENOUGH,
        )
        assert done.stderr == ""
        return done.stdout.split()

    return press


def test_ids_and_names_of_pools_and_nodes_are_completed(tab: Any) -> None:
    assert tab("experiment", "pause", "") == ["2", "1"]
    assert tab("e", "pause", "2", "1") == ["1"] and tab("e", "pause", "2,") == ["2,2", "2,1"]
    assert tab("job", "update", "x", "--resource-pool", "g") == ["gpu"]
    assert tab("agent", "disable", "n") == ["node1"]
    assert tab("trial", "lo") == ["logs"], "what click knows by itself"


def test_without_a_master_it_is_quick_and_silent(tab: Any) -> None:
    assert tab("experiment", "pause", "", url="") == [], "none is started"
    assert tab("experiment", "pause", "", url="http://127.0.0.1:1") == []
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # takes connections and never answers
        began = time.monotonic()
        assert tab("experiment", "pause", "", url=f"http://127.0.0.1:{deaf.getsockname()[1]}") == []
        assert time.monotonic() - began < LONG_ENOUGH / 2
