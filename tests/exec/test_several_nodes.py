"""Nodes are plain processes here, all on loopback."""

import contextlib
import json
import secrets
import shutil
import signal
import socket
import threading

from dethpc.exec.link import Link
from dethpc.exec.rendezvous import candidate_ports
from dethpc.rundir.files import read_json, write_json
from dethpc.rundir.secret import Secret
from tests.waiting import LONG_ENOUGH

INFO = "python3 -c \"import os; print(open(os.environ['DETHPC_INFO']).read())\""


def start_all(run, count: int, **environ: str) -> list:
    return [run.start(rank, count, **environ) for rank in range(count)]


def abandon(run) -> None:
    """Clear what a killed node could not: its processes, and the directory that its next attempt would remove."""
    run.kill()
    for left in run.scratch.iterdir():
        shutil.rmtree(left)


def test_nodes_meet_and_know_each_other(run) -> None:
    run.make(INFO, slots=6, slots_per_node=2, num_nodes=3, latest_checkpoint="c-9", steps_completed=4)
    codes = [run.finish(node)[0] for node in start_all(run, 3)]
    assert codes == [0, 0, 0]
    assert run.end()["finished"]
    infos = [json.loads(run.text(rank)) for rank in range(3)]
    assert [info["rendezvous"]["container_rank"] for info in infos] == [0, 1, 2]
    assert [info["agent_id"] for info in infos] == ["n0", "n1", "n2"]
    for info in infos:
        assert info["rendezvous"]["container_addrs"] == ["127.0.0.1"] * 3
        assert info["rendezvous"]["container_slot_counts"] == [2, 2, 2]
        assert info["ports"] == infos[0]["ports"]
        assert (info["latest_checkpoint"], info["trial"]["steps_completed"]) == ("c-9", 4)


def test_a_missing_node_is_named(run, tmp_path) -> None:
    # Node 0 counts from when node 2 is about to join, however long that takes to start.
    hook = 'test $DET_AGENT_ID != n2 || touch "$GO"; while ! test -e "$GO"; do sleep 0.1; done'
    environment = {"GO": str(tmp_path / "go")}
    shape = {"slots": 3, "slots_per_node": 1, "num_nodes": 3}
    run.make("echo never", {"startup-hook.sh": hook}, **shape, rendezvous_timeout=5, environment=environment)
    nodes = [run.start(rank, 3) for rank in (0, 2)]
    assert [run.finish(node)[0] for node in nodes] == [1, 1]
    end = run.end()
    assert end["phase"] == "rendezvous"
    assert end["message"] == "after 5 s these nodes had not joined: n1 (node 1)"
    assert "never" not in run.text(0) + run.text(2)


def test_a_missing_chief_is_named(run) -> None:
    run.make("echo never", num_nodes=2, rendezvous_timeout=1)
    code, _ = run.finish(run.start(1, 2))
    assert code == 1
    assert "node 0 (n0 at 127.0.0.1) was not reached" in run.text(1)


def test_a_hook_that_fails_on_one_node_fails_all(run) -> None:
    hook = "echo on $DET_AGENT_ID; test $DET_AGENT_ID != n1 || exit 9"
    run.make("echo never", {"startup-hook.sh": hook}, num_nodes=3)
    codes = [run.finish(node)[0] for node in start_all(run, 3)]
    assert (codes[0], codes[1]) == (9, 9)
    assert codes[2] != 0
    end = run.end()
    assert (end["phase"], end["node"], end["message"]) == ("hook", 1, "startup-hook.sh exited with 9")
    assert "on n1" in end["tail"]
    assert "never" not in run.text(0) + run.text(2)


def test_a_failure_on_one_node_ends_the_others(run) -> None:
    run.make("trap '' TERM; echo ready; test $DET_AGENT_ID = n1 && exit 6; sleep 600", num_nodes=3)
    codes = [run.finish(node)[0] for node in start_all(run, 3)]
    assert codes == [6, 6, 137] or codes == [6, 6, 143]
    end = run.end()
    assert (end["exit_code"], end["node"], end["finished"]) == (6, 1, False)
    assert "node 1 failed" in run.text(2)


def test_a_failed_node_stays_until_the_report_is_written(run, tmp_path) -> None:
    """Slurm may end the whole step as soon as one of its tasks has failed."""
    hook = "test $DET_AGENT_ID = n1 && exit 9; while ! test -e $GO; do sleep 0.1; done"
    run.make("echo never", {"startup-hook.sh": hook}, num_nodes=2, environment={"GO": str(tmp_path / "go")})
    chief, peer = start_all(run, 2)
    (tmp_path / "go").touch()
    assert run.finish(peer)[0] == 9
    assert run.end()["message"] == "startup-hook.sh exited with 9"
    assert run.finish(chief)[0] == 9


def test_a_failure_on_the_chief_ends_the_others(run) -> None:
    run.make("test $DET_AGENT_ID = n0 && exit 6; sleep 600", num_nodes=2)
    codes = [run.finish(node)[0] for node in start_all(run, 2)]
    assert codes[0] == 6
    assert codes[1] in (137, 143)
    assert (run.end()["exit_code"], run.end()["node"]) == (6, 0)


def test_the_attempt_lasts_until_the_last_node_has_ended(run, tmp_path) -> None:
    wait = "test $DET_AGENT_ID = n0 || while ! test -e $GO; do sleep 0.1; done; echo over"
    run.make(wait, num_nodes=2, environment={"GO": str(tmp_path / "go")})
    chief, peer = start_all(run, 2)
    run.wait_until(lambda: "over" in run.text(0))
    assert chief.poll() is None
    assert run.end() is None
    (tmp_path / "go").touch()
    assert [run.finish(node)[0] for node in (chief, peer)] == [0, 0]
    assert run.end()["finished"]


def test_a_lost_node_ends_the_attempt_and_is_named(run) -> None:
    run.make("echo ready; sleep 600", num_nodes=2)
    chief, peer = start_all(run, 2)
    run.wait_until(lambda: "ready" in run.text(0) and "ready" in run.text(1))
    peer.send_signal(signal.SIGKILL)
    code, _ = run.finish(chief)
    end = run.end()
    assert (code, end["exit_code"], end["node"], end["stop_reason"]) == (1, None, 1, "node_lost")
    assert end["message"] == "node n1 (node 1) was lost"
    abandon(run)


def test_a_lost_chief_ends_the_others(run) -> None:
    run.make("echo ready; sleep 600", num_nodes=2)
    chief, peer = start_all(run, 2)
    run.wait_until(lambda: "ready" in run.text(0) and "ready" in run.text(1))
    chief.send_signal(signal.SIGKILL)
    code, _ = run.finish(peer)
    assert code in (137, 143)
    assert "node n0 (node 0) was lost" in run.text(1)
    abandon(run)


def test_kill_reaches_every_node(run) -> None:
    run.make("trap '' TERM; echo ready; sleep 600", num_nodes=2)
    nodes = start_all(run, 2)
    run.wait_until(lambda: "ready" in run.text(0) and "ready" in run.text(1))
    write_json(run.dir.closed, {"intent": "kill", "reason": "", "at": 0})
    for node in nodes:
        node.send_signal(signal.SIGTERM)
    assert all(run.finish(node)[0] != 0 for node in nodes)
    assert run.end()["signal"] in (9, 15), run.end()


def test_asked_to_stop_while_they_meet_none_begins(run) -> None:
    run.make("echo never", num_nodes=2)
    chief = run.start(0, 2)
    run.wait_until(run.attempt().started.exists)
    write_json(run.attempt().stop, {"reason": "pause", "at": 0, "deadline": None})
    peer = run.start(1, 2)
    assert [run.finish(node)[0] for node in (chief, peer)] == [0, 0]
    assert (run.end()["acked"], run.end()["finished"]) == (True, False)
    assert run.text(0) == run.text(1) == ""


def test_strangers_do_not_disturb_the_rendezvous(run) -> None:
    """A service of somebody else's holds the first port; another node claims to belong with the run's token."""
    attempt, other = _first_port_held()
    with other:

        def answer() -> None:
            try:
                while True:
                    sock, _ = other.accept()
                    with sock:
                        sock.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
            except OSError:
                pass

        service = threading.Thread(target=answer)
        service.start()
        try:
            run.make("echo met", num_nodes=2, run=attempt.rpartition(".")[0])
            chief = run.start(0, 2)
            second = candidate_ports(attempt)[1]
            intruder = run.wait_until(lambda: _connect(second))
            with intruder:
                token = read_json(run.dir.spec)["token"]  # as somebody may have it from another release's job
                assert not Link(intruder).introduce(Secret(token, f"rendezvous {attempt}"), "node", 1)
            noise = _connect(second)
            with noise:
                noise.sendall(b"\x00" * 10000)
                peer = run.start(1, 2)
                assert [run.finish(node)[0] for node in (chief, peer)] == [0, 0]
        finally:
            other.shutdown(socket.SHUT_RDWR)
            service.join()
    assert (run.text(0), run.text(1)) == ("met", "met")


def _first_port_held() -> tuple:
    """An attempt that nobody else on this machine has, and a service on the first port where its nodes look."""
    while True:
        attempt = f"7.1.{secrets.randbelow(10**9)}.0"
        with contextlib.suppress(OSError):
            return attempt, socket.create_server(("", candidate_ports(attempt)[0]))


def _connect(port: int):
    try:
        return socket.create_connection(("127.0.0.1", port), timeout=LONG_ENOUGH)
    except OSError:
        return None


def test_a_wrong_number_of_nodes_is_refused(run) -> None:
    run.make("true", num_nodes=3)
    code, output = run.finish(run.start(0, 2))
    assert code == 1
    assert "the run has 3 nodes" in output
    assert read_json(run.attempt().end) is None
