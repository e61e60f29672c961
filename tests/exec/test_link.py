"""What somebody on the network can do to the connections between nodes."""

import json
import socket
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dethpc.exec import link as module
from dethpc.exec.link import Caller, Link
from dethpc.rundir.secret import Secret
from tests.waiting import LONG_ENOUGH

SECRET = Secret("between nodes", "rendezvous 1.1.1.0")
MESSAGES = [{"hello": {"name": "n1"}}, {"run": "true"}, {"outcome": {}}, {"end": "why"}]
PROPERTIES = settings(max_examples=40, deadline=None)


def pair() -> tuple:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname(), timeout=LONG_ENOUGH)
        return server.accept()[0], client


def proved() -> tuple:
    """Both sides of a connection whose ends have proved themselves, and what each has heard of the other."""
    ours, theirs = pair()
    chief, node = Link(ours), Link(theirs)
    chief.challenge()
    introduced: list = []
    thread = threading.Thread(target=lambda: introduced.append(node.introduce(SECRET, "node", 1)))
    thread.start()
    hello = chief.next()
    assert chief.caller(SECRET, hello) == Caller("node", 1)
    chief.welcome(SECRET, hello)
    thread.join()
    assert introduced == [True]
    return chief, node


def lines() -> list:
    """What a node sends over a connection, one line for each of ``MESSAGES``, and the chief that awaits them."""
    chief, node = proved()
    found = []
    for message in MESSAGES:
        node.send(message)
        found.append(chief.sock.recv(1 << 16))
    node.close()
    ours, wire = pair()
    chief.close()
    chief.sock = ours
    return [chief, wire, found]


def heard(chief: Link, wire: socket.socket, data: bytes) -> list:
    wire.sendall(data)
    wire.shutdown(socket.SHUT_WR)
    found = []
    while not chief.lost:
        found += chief.receive()
    chief.close()
    wire.close()
    return found


@PROPERTIES
@given(order=st.lists(st.integers(0, len(MESSAGES) - 1), max_size=6))
def test_messages_count_in_the_order_in_which_they_were_sent(order: list) -> None:
    chief, wire, sent = lines()
    found = heard(chief, wire, b"".join(sent[n] for n in order))
    in_place = next((n for n, message in enumerate(order) if n != message), len(order))
    assert found in (MESSAGES[:in_place], [])  # those that arrived together with a wrong one do not count
    assert found or in_place == 0 or in_place < len(order)


@PROPERTIES
@given(bit=st.integers(0, 8 * 64))
def test_a_message_that_was_altered_ends_the_connection(bit: int) -> None:
    chief, wire, sent = lines()
    altered = bytearray(sent[0])
    altered[bit // 8] ^= 1 << bit % 8
    assert heard(chief, wire, bytes(altered)) == []


@PROPERTIES
@given(noise=st.binary(max_size=200))
def test_noise_is_no_message(noise: bytes) -> None:
    chief, wire, _ = lines()
    assert heard(chief, wire, noise + b"\n") == []


def test_who_sends_before_the_proof_is_through_is_shown_the_door() -> None:
    ours, theirs = pair()
    chief = Link(ours)
    theirs.sendall(json.dumps({"role": "node"}).encode() + b"\n" + json.dumps({"run": "rm"}).encode() + b"\n")
    assert chief.receive() == [] and chief.lost
    chief.close()
    theirs.close()


@pytest.mark.parametrize(
    "hello", [{}, {"rank": "1"}, {"rank": 1, "proof": 1}, {"rank": 1, "role": "chief"}, {"rank": [], "nonce": {}}]
)
def test_a_stranger_is_nobody(hello: dict) -> None:
    ours, theirs = pair()
    chief = Link(ours)
    assert chief.caller(SECRET, {"role": "node", "nonce": "x", "proof": "0" * 64, **hello}) is None
    chief.close()
    theirs.close()


def test_a_service_that_answers_byte_by_byte_keeps_a_node_no_longer_than_agreed(monkeypatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.3)
    ours, theirs = pair()
    node, over = Link(ours), threading.Event()

    def drip() -> None:
        try:
            while not over.wait(0.01):
                theirs.sendall(b"x")
        except OSError:
            over.set()

    thread = threading.Thread(target=drip)
    thread.start()
    assert not node.introduce(SECRET, "node", 1)
    assert over.wait(LONG_ENOUGH)
    thread.join()
    theirs.close()
