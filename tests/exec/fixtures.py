"""Run directories made by hand, and node processes started on them as the batch script would."""

import contextlib
import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, Iterator, Optional

import pytest

from dethpc.rundir.files import read_json, write_json
from dethpc.rundir.layout import AttemptDir, RunDir
from dethpc.rundir.logline import read_lines
from dethpc.rundir.spec import Spec
from tests.waiting import LONG_ENOUGH, wait_until

ROOT = Path(__file__).resolve().parents[2]


class Run:
    """One run of a hand-made trial. ``mark`` stands in the environment of every process, so that survivors are found."""

    def __init__(self, tmp: Path) -> None:
        self.dir = RunDir(tmp / "run")
        self.dir.make()
        self.scratch = tmp / "scratch"
        self.scratch.mkdir()
        self.mark = f"DETHPC_TEST_MARK={tmp}"
        self.nodes: list[subprocess.Popen[str]] = []
        self.python = sys.executable
        self.wait_until = wait_until

    def make(self, entrypoint: Any, files: Optional[dict[str, str]] = None, **changes: Any) -> None:
        archive = self.dir.path / "context.tar.gz"
        with tarfile.open(archive, "w:gz") as tar:
            for name, content in (files or {}).items():
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(content.encode()), 0o755
                tar.addfile(member, io.BytesIO(content.encode()))
        fields: dict[str, Any] = {
            "cluster_id": "c0ffee00-test", "cluster_name": "here", "master_file": str(self.dir.path / "master.json"),
            "run": "7.1.2", "experiment_id": 7, "trial_id": 1, "task_id": "7.1", "run_number": 2, "trial_seed": 99,
            "hparams": {"lr": 0.1}, "config": {"name": "x", "data": {"a": 1}}, "entrypoint": entrypoint,
            "context": str(archive), "context_sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
            # Its own, as every run has: tests of other files use the same ports of this machine at the same time.
            "token": f"very-secret-token-{self.dir.path}", "rendezvous_timeout": 60,
            "worker_secret": f"between-workers-{self.dir.path}",
        }  # fmt: skip
        write_json(self.dir.spec, Spec(**{**fields, **changes}).to_json())

    def start(self, rank: int = 0, nodes: int = 1, k: int = 0, **environ: str) -> "subprocess.Popen[str]":
        mark, _, value = self.mark.partition("=")
        env = {name: text for name, text in os.environ.items() if not name.startswith(("SLURM_", "DETHPC_", "DET_"))}
        env.update(
            {
                mark: value,
                "PYTHONPATH": str(ROOT),
                "DETHPC_JOB_ID": "17",
                "DETHPC_ATTEMPT": str(k),
                "DETHPC_NODE_RANK": str(rank),
                "DETHPC_NODES": ",".join(f"n{i}" for i in range(nodes)),
                "DETHPC_ADDRESSES": ",".join(["127.0.0.1"] * nodes),
                "DETHPC_WORKDIR_BASE": str(self.scratch),
            }
        )
        env.update(environ)
        node = subprocess.Popen(
            [self.python, "-m", "dethpc.exec", str(self.dir.path)],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/", start_new_session=True,
        )  # fmt: skip
        self.nodes.append(node)
        return node

    def finish(self, node: "subprocess.Popen[str]", seconds: float = LONG_ENOUGH) -> tuple[int, str]:
        output, _ = node.communicate(timeout=seconds)
        return node.returncode, output

    def run(
        self, entrypoint: Any, files: Optional[dict[str, str]] = None, **changes: Any
    ) -> tuple[int, dict[str, Any]]:
        self.make(entrypoint, files, **changes)
        code, output = self.finish(self.start())
        report = self.end()
        assert report is not None, output
        return code, report

    def attempt(self, k: int = 0) -> AttemptDir:
        return self.dir.attempt(k)

    def end(self, k: int = 0) -> Optional[dict[str, Any]]:
        return read_json(self.attempt(k).end)

    def text(self, rank: int = 0, k: int = 0) -> str:
        lines, _ = read_lines(self.attempt(k).log(rank))
        return "\n".join(line.text for line in lines)

    def printed(self, rank: int = 0, k: int = 0) -> str:
        """What user code wrote to its standard output."""
        lines, _ = read_lines(self.attempt(k).log(rank))
        return "\n".join(line.text for line in lines if line.stdtype == "stdout")

    def kill(self) -> None:
        """End the nodes, and what a killed node could not end itself."""
        for node in self.nodes:
            if node.poll() is None:
                node.send_signal(signal.SIGKILL)
            if not node.stdout.closed:
                node.communicate()
        while left := self.survivors():
            for line in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(line.rpartition("(")[2][:-1]), signal.SIGKILL)

    def survivors(self) -> list[str]:
        """Living processes that carry the mark."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                environ = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
                if self.mark in environ and " Z " not in Path(f"/proc/{pid}/stat").read_text():
                    found.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") + f"({pid})")
            except OSError:
                continue
        return found


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Fails the test that leaves a process or a working directory behind."""
    made = Run(tmp_path)
    yield made
    ended = [node for node in made.nodes if node.poll() is not None]
    left, scratch = made.survivors() if len(ended) == len(made.nodes) else [], os.listdir(made.scratch)
    made.kill()
    assert len(ended) == len(made.nodes)
    assert left == []
    assert scratch == []
