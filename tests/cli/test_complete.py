"""TAB completes what only the master knows, and never gets in the way of who types."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from dethpc.cli import complete
from tests.waiting import LONG_ENOUGH

# What bash itself does with the script that det prints: the words so far, and a TAB at their end.
TAB = """
eval "$(det completion bash)"
COMP_WORDS=({words}) COMP_CWORD=$(({count} - 1))
_det_completion det
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


# On a busy machine its answer may take longer than who types would wait for.
DET = """
import os, sys
from dethpc.cli import complete, main
complete._PATIENCE = float(os.environ.get("TEST_PATIENCE", 60))
main(prog_name="det")
"""


@pytest.fixture
def tab(environment: dict[str, str], master: Any, tmp_path: Path) -> Any:
    (tmp_path / "det").write_text(f"#!{sys.executable}\n{DET}")
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


def test_ids_and_names_of_pools_and_nodes_are_completed(tab: Any, master: Any) -> None:
    assert tab("experiment", "pause", "") == ["2", "1"]
    assert tab("e", "pause", "2", "1") == ["1"] and tab("e", "pause", "2,") == ["2,2", "2,1"]
    assert tab("job", "update", "x", "--resource-pool", "g") == ["gpu"]
    assert tab("agent", "disable", "n") == ["node1"]
    answer = master.answer
    master.answer = lambda method, path, query, body: (
        {"experiments": [master.experiment]} if path == "/api/v1/experiments" else answer(method, path, query, body)
    )
    assert tab("t", "kill", "") == ["1", "2"] and tab("t", "kill", "1,") == ["1,1", "1,2"]
    master.checkpoints = [{"uuid": "0d714127-3c1f"}]
    assert set(tab("c", "rm", "0d")) == {"0d714127-3c1f"}
    assert tab("trial", "lo") == ["logs"], "what click knows by itself"


def test_the_master_is_asked_as_the_user_who_is_named_or_not_at_all(
    tab: Any, master: Any, environment: dict[str, str], tmp_path: Path
) -> None:
    logins = {"active_user": "carol", "tokens": {"carol": "carols", "bob": "bobs"}}
    (tmp_path / "auth.json").write_text(json.dumps({"masters": {master.url: logins}}))
    environment |= {"DET_DEBUG_CONFIG_PATH": str(tmp_path), "DET_USER": "bob"}
    environment.pop("DET_USER_TOKEN", None)
    for words, token in (((), "bobs"), (("-u", "carol"), "carols")):
        assert tab(*words, "experiment", "pause", "") == ["2", "1"]
        assert master.headers[-1]["Authorization"] == f"Bearer {token}"
    requests = len(master.asked)
    assert tab("-u", "dave", "experiment", "pause", "") == [] and len(master.asked) == requests


NAMES = ["digits", "digits again", 'it\'s "$5", & more', "a:b=c*", "zebra", "zebra"]


def in_a_shell(environment: dict[str, str], url: str, typed: str) -> list[str]:
    """The arguments that a line has for bash once TAB was pressed at its end."""
    main, terminal = pty.openpty()
    script = 'PS1=; bind "set enable-bracketed-paste off" "set bell-style none"; eval "$(det completion bash)"\n'
    # ctrl-A: what completion made of the line is handed to printf, which shows how bash reads it
    keys = f"{script}{typed}\t\x01printf '<%s>\\n' \r\nexit\r\n"
    command = ["bash", "--norc", "--noprofile", "-i"]
    env = {**environment, "DET_MASTER": url, "TERM": "dumb", "COLUMNS": "500"}
    with subprocess.Popen(
        command, env=env, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True
    ) as shell:
        os.close(terminal)
        os.write(main, keys.encode())
        given_up = threading.Timer(
            LONG_ENOUGH, shell.kill
        )  # a quotation mark that stays open would have it wait for more
        given_up.start()
        text = b""
        with contextlib.suppress(OSError):  # of a terminal whose other end is closed
            while piece := os.read(main, 65536):
                text += piece
        given_up.cancel()
    os.close(main)
    return re.findall(r"^<(.*)>\r?$", text.decode(), re.MULTILINE)


@pytest.mark.parametrize(
    "typed, word",
    [
        ("digits", "digits"),
        ("digits\\ ", NAMES[1]),
        ('"digits a', NAMES[1]),
        ("it", NAMES[2]),
        ('"it', NAMES[2]),
        ("a", NAMES[3]),
        ("a\\:", NAMES[3]),
        ("zeb", "zeb"),
    ],
)
def test_bash_completes_names_however_they_are_quoted(
    environment: dict[str, str], tab: Any, master: Any, typed: str, word: str
) -> None:
    answer = master.answer
    named = [{**master.experiment, "id": n, "name": name} for n, name in enumerate(NAMES, 1)]
    master.answer = lambda method, path, query, body: (
        {"experiments": named} if path == "/api/v1/experiments" else answer(method, path, query, body)
    )
    assert in_a_shell(environment, master.url, f"det e pause {typed}") == ["det", "e", "pause", word]


def test_fish_and_zsh_get_whole_words(det: Any, environment: dict[str, str], master: Any) -> None:
    assert 'string split -m 1 ","' in det("completion", "fish").stdout
    environment.update(COMP_WORDS="det e pause 2,", COMP_CWORD="2,", _DET_COMPLETE="fish_complete")
    assert det(master=master).stdout.splitlines() == ["plain,2,2\tdigits, ACTIVE", "plain,2,1\tdigits, ACTIVE"]
    environment.update(COMP_WORDS="det user edit a", COMP_CWORD="3", _DET_COMPLETE="zsh_complete")
    master.answer = lambda *_: {"users": [{"username": "ada x", "displayName": "Ada"}]}
    assert det(master=master).stdout.splitlines() == ["plain", "ada x", "Ada"]


def test_a_name_before_the_word_starts_no_master(tab: Any, environment: dict[str, str]) -> None:
    tab("experiment", "label", "add", "digits", "x", url="")
    assert not os.path.exists(environment["DETHPC_HOME"])


def test_without_a_master_it_is_quick_and_silent(tab: Any, environment: dict[str, str]) -> None:
    environment["TEST_PATIENCE"] = str(complete._PATIENCE)
    assert tab("experiment", "pause", "", url="") == [], "none is started"
    assert tab("experiment", "pause", "", url="http://127.0.0.1:1") == []
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # takes connections and never answers
        began = time.monotonic()
        assert tab("experiment", "pause", "", url=f"http://127.0.0.1:{deaf.getsockname()[1]}") == []
        assert time.monotonic() - began < LONG_ENOUGH / 2
