"""A real JupyterLab on a Unix socket, with real kernels."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from dethpc.exec import notebook
from dethpc.exec.service import Idle
from tests.exec.started import Started
from tests.processes import tcp_ports
from tests.services import Jupyter, unix
from tests.waiting import wait_until

PATH = "/proxy/some-task/"


def test_a_kernel_runs_code_in_the_folder_that_stays_and_listens_on_no_port(tmp_path: Path) -> None:
    (tmp_path / "context.txt").write_text("of the context")
    folder = tmp_path.parent / f"{tmp_path.name}-stays"
    with Started(tmp_path, "notebook", "--path", PATH, "--folder", str(folder), MARK="of the shell") as started:
        jupyter = Jupyter(unix(started.socket), PATH)
        wait_until(lambda: jupyter.ready("api"))
        kernel = jupyter.start_kernel()
        code = (
            "import os; print(os.environ['MARK']); print(open('context.txt').read()); open('result', 'w').write('42')"
        )
        assert jupyter.run(kernel, code) == "of the shell\nof the context\n"
        assert (folder / "result").read_text() == "42"
        channels = jupyter.run(kernel, "import ipykernel.connect; print(ipykernel.connect.get_connection_info())")
        assert json.loads(channels)["transport"] == "ipc"
        of_kernel = int(jupyter.run(kernel, "print(os.getpid())"))
        servers = [pid for pid in started.processes() if pid != of_kernel]
        assert len(servers) >= 2 and tcp_ports(servers) == []
        assert jupyter.request("GET", "../outside")[0] == 404
        assert started.end() == 0
    (folder / "context.txt").write_text("as its user has left it")
    with Started(tmp_path, "notebook", "--path", PATH, "--folder", str(folder)) as started:
        jupyter = Jupyter(unix(started.socket), PATH)
        wait_until(lambda: jupyter.ready("api"))
        assert jupyter.get("api/contents/context.txt?content=1")["content"] == "as its user has left it"
        assert jupyter.get("api/contents/result?content=1")["content"] == "42"


def test_it_ends_without_kernels_and_not_while_there_is_one(tmp_path: Path) -> None:
    with Started(tmp_path, "notebook", "--path", PATH, "--idle-timeout", "3") as started:
        jupyter = Jupyter(unix(started.socket), PATH)
        wait_until(lambda: jupyter.ready("api"))
        kernel = jupyter.start_kernel()
        assert jupyter.run(kernel, "import time; time.sleep(6); print('awake')") == "awake\n"
        assert jupyter.request("DELETE", f"api/kernels/{kernel}", **jupyter.page)[0] == 204
        assert started.wait() == 0
        assert "JupyterLab ends: idle for 3s (idle_timeout)" in started.log
        wait_until(lambda: not started.processes())


class Server(notebook.Jupyter):
    """Says what a test has put there."""

    def __init__(self, kernels: list[dict[str, Any]], terminals: list[dict[str, Any]]) -> None:
        self._answers = {"api/kernels": kernels, "api/terminals": terminals}

    def _get(self, name: str) -> list[dict[str, Any]]:
        return self._answers[name]


def kernel(connections: int = 0, state: str = "idle", at: str = "2026-01-01T00:00:00.5Z") -> dict[str, Any]:
    return {"connections": connections, "execution_state": state, "last_activity": at}


@pytest.mark.parametrize(
    "rule, in_use, idle",
    [
        ("kernels_or_terminals", ([kernel()], []), ([], [])),
        ("kernels_or_terminals", ([], [{"name": "1"}]), ([], [])),
        ("kernel_connections", ([kernel(), kernel(1)], []), ([kernel(state="busy")], [])),
        ("activity", ([kernel(state="busy")], []), ([kernel(3)], [])),
        ("activity", ([kernel(at="2999-01-01T00:00:00Z")], []), ([kernel(at="no time")], [{"last_activity": None}])),
    ],
)
def test_what_counts_as_use(rule: str, in_use: Any, idle: Any) -> None:
    assert notebook.RULES[rule]()(Server(*in_use))
    assert not notebook.RULES[rule]()(Server(*idle))


def test_activity_counts_once() -> None:
    rule = notebook.Activity()
    later = datetime.now(timezone.utc).replace(year=2998).isoformat()
    server = Server([kernel(at=later)], [])
    assert rule(server) and not rule(server)


def test_without_a_time_out_nobody_asks(tmp_path: Path) -> None:
    def asked() -> bool:
        raise AssertionError

    assert not Idle("it", None, asked).expired()


def test_where_it_is_not_installed_the_log_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['jupyterlab'] = None")
    root = Path(__file__).parents[2]
    with Started(tmp_path, "notebook", PYTHONPATH=f"{root}:{tmp_path}") as started:
        code = started.wait()
        assert code == 127 and "JupyterLab is not installed" in started.log and "pip install jupyterlab" in started.log


def test_the_last_options_are_the_tasks_own() -> None:
    argv = notebook.command("/s", "/p/", ["--ServerApp.sock=", "--ServerApp.port=1"])
    assert argv.index("--ServerApp.sock=/s") > argv.index("--ServerApp.sock=")
    assert json.dumps(argv)
