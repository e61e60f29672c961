"""Another user of the machine takes the port of a master that was killed while its jobs train."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from dethpc.client import Session, proof
from dethpc.domain.reports import ReportKind
from dethpc.errors import Unauthorized
from dethpc.rundir.journal import JournalWriter
from tests.e2e.conftest import User
from tests.waiting import wait_until

BELIEVE_ME = json.dumps(
    {"appliedSeq": 9999, "stop": {"reason": "told so"}, "preempt": True, "proof": "0" * 64}
).encode()


@contextmanager
def stranger(port: int) -> Iterator[list[bytes]]:
    """Listens there and answers everything with a word that would end a training; yields all that it is sent."""
    heard: list[bytes] = []

    def answer(client: socket.socket, status: bytes) -> None:
        with closing(client):
            while data := client.recv(1 << 16):
                heard.append(data)
                client.sendall(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(BELIEVE_ME), BELIEVE_ME))

    def serve() -> None:
        while True:
            for status in (b"200 OK", b"400 Bad Request", b"410 Gone"):
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(client, status), daemon=True).start()

    def take() -> socket.socket | None:
        with suppress(OSError):  # the last threads of a process that was killed keep its port for a moment
            return socket.create_server(("127.0.0.1", port))
        return None

    with wait_until(take) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield heard
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def try_to_forge(user: User, token: str) -> None:
    """With a run's token, somehow stolen, while the run lives: a checkpoint of which another folder of the user's is the files."""
    (user.folder / "precious").mkdir()
    thief = Session(user.master()["url"], token)
    _, run, _ = token.split(":")
    path = f"/api/v1/runs/{run}/attempts/0/events"
    applied = 11  # ten steps and a checkpoint: it holds, and reports nothing more
    wait_until(lambda: thief.post(path, {"lines": []})["appliedSeq"] == applied)
    data = {"uuid": "precious", "steps_completed": 5, "storage": {"type": "shared_fs", "host_path": str(user.folder)}}
    with JournalWriter(user.folder / "forged.jsonl") as journal:
        for _ in range(applied):
            journal.append(ReportKind.PROGRESS, {"progress": 0.5})
        _, line, _ = journal.append_line(ReportKind.CHECKPOINT, data)
    assert thief.post(path, {"lines": [line]})["appliedSeq"] == applied
    user.det("checkpoint", "delete", "precious", "--yes", code=None)
    assert "there is no checkpoint 'precious'" in user.errors
    assert (user.folder / "precious").is_dir()
    with pytest.raises(Unauthorized, match="does not allow this"):
        thief.get("/api/v1/experiments/1/model_def")


def test_the_port_of_a_dead_master_leads_nowhere(user: User) -> None:
    go = user.folder / "go"
    experiment = user.create(hyperparameters={"lr": 0.1, "steps": 40, "hold": 10, "go": str(go)})
    user.wait_steps(experiment, 10)
    (spec,) = user.home.glob("runs/*/spec.json")
    token = json.loads(spec.read_text())["token"]
    try_to_forge(user, token)
    port = int(user.master()["url"].rpartition(":")[2])

    user.kill_master()
    with stranger(port) as heard:
        wait_until(lambda: len(heard) >= 2)
        go.touch()
        user.det("experiment", "wait", str(experiment))  # starts another master, at another port

    (trial,) = user.trials(experiment)
    assert [m["totalBatches"] for m in user.metrics(trial["id"], "training")] == list(range(1, 41))
    assert "stopping at step" not in user.log(experiment)
    secret = token.encode()
    assert all(data.startswith(b"GET " + proof.PATH.encode() + b"?nonce=") for data in heard), heard
    assert not any(word in data for data in heard for word in (secret, secret.rpartition(b":")[2], b"Authorization"))
