"""What somebody on the network can do to the workers' channels: bytes that were cut, altered, repeated or moved."""

from __future__ import annotations

import contextlib
import pickle
import socket
import threading
import time
from typing import Any, Iterator, List, Tuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dethpc.core import _channel
from dethpc.core._channel import BROADCAST, Channel
from dethpc.errors import RendezvousError
from dethpc.rundir.secret import MARK, Secret
from tests.waiting import LONG_ENOUGH

SECRET = Secret("between workers", "workers 1.1.1.0 all")
WORDS = (b"challenge", b"hello")
HEAD = _channel._HEAD.size + MARK
STUFF = [True, [1, "two", None], {"an": object}, (1, 2), 2.5]
"""Plain and not: both forms of frames."""


class Unpickled:
    """Notes that somebody took it out of a pickle."""

    seen: List[int] = []

    def __reduce__(self) -> Any:
        return Unpickled.seen.append, (1,)


def channel(secret: Secret = SECRET, words: Tuple[bytes, ...] = WORDS, *, chief: bool) -> Tuple[Channel, socket.socket]:
    """A channel, and the other end of its wire."""
    ours, wire = socket.socketpair()
    wire.settimeout(LONG_ENOUGH)
    ours.settimeout(LONG_ENOUGH)
    return Channel(ours, secret.seal(chief, *words), "rank 1"), wire


def frames(stuff: List[Any], **whose: Any) -> List[bytes]:
    """What a worker's side sends."""
    sender, wire = channel(chief=False, **whose)
    found = []
    for item in stuff:
        sender.send(BROADCAST, item)
        found.append(wire.recv(1 << 20))
    sender.close()
    wire.close()
    return found


def heard(data: bytes, expected: int, *, chief: bool = True) -> List[Any]:
    """What the chief's side takes of ``data``, at most ``expected`` messages, before it gives up the connection."""
    receiver, wire = channel(chief=chief)
    wire.sendall(data)
    wire.shutdown(socket.SHUT_WR)
    taken: List[Any] = []
    try:
        while len(taken) < expected:
            taken.append(receiver.receive(BROADCAST))
    except ConnectionError:
        pass
    finally:
        receiver.close()
        wire.close()
    return taken


@pytest.fixture(autouse=True)
def nothing_unpickled() -> Iterator[None]:
    Unpickled.seen.clear()
    yield
    assert not Unpickled.seen


PROPERTIES = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
FRAMES = frames(STUFF)
BAITS = frames([Unpickled() for _ in range(4)])


def test_what_was_sent_arrives_as_it_was() -> None:
    stuff = [
        *STUFF,
        [],
        [[1], [2]],
        [(1,)],
        float("inf"),
        "\ud800",
        1 << 70,
        {1: 2},
        b"x",
        list(range(2000)),
        [[[1]]],
        None,
    ]
    found = heard(b"".join(frames(stuff)), len(stuff))
    assert found == stuff and [type(item) for item in found] == [type(item) for item in stuff]
    forms = [_channel.pack(item)[0] for item in (None, True, 3, "x", [1, [2]], {}, (1,), 1 << 64)]
    assert forms == [_channel._JSON] * 5 + [_channel._PICKLE] * 3


@PROPERTIES
@given(cut=st.integers(0, len(BAITS[0]) - 1))
def test_a_message_that_was_cut_short_is_not_unpickled(cut: int) -> None:
    assert heard(BAITS[0][:cut], 1) == []


@PROPERTIES
@given(bit=st.integers(0, 8 * len(BAITS[0]) - 1))
def test_a_message_with_one_bit_flipped_is_not_unpickled(bit: int) -> None:
    altered = bytearray(BAITS[0])
    altered[bit // 8] ^= 1 << bit % 8
    assert heard(bytes(altered) + BAITS[1], 2) == []


@PROPERTIES
@given(order=st.lists(st.integers(0, len(FRAMES) - 1), max_size=8))
def test_messages_count_in_the_order_in_which_they_were_sent(order: List[int]) -> None:
    """Left out, repeated, moved: all up to the first that is out of place counts, and nothing after."""
    in_place = next((n for n, frame in enumerate(order) if n != frame), len(order))
    assert heard(b"".join(FRAMES[frame] for frame in order), len(order) + 1) == STUFF[:in_place]


@PROPERTIES
@given(head=st.integers(0, 3), body=st.integers(0, 3))
def test_a_head_and_a_content_of_two_messages_make_none(head: int, body: int) -> None:
    if head != body:
        assert heard(BAITS[head][:HEAD] + BAITS[body][HEAD:], 1) == []


@PROPERTIES
@given(noise=st.binary(max_size=400))
def test_noise_is_no_message(noise: bytes) -> None:
    assert heard(noise, 1) == []


def test_a_message_is_worth_nothing_on_another_connection_or_the_other_way() -> None:
    bait = [Unpickled()]
    for whose in (
        {"words": (b"another challenge", b"hello")},
        {"secret": Secret("between workers", "workers 1.1.1.1 all")},  # the run's next attempt
        {"secret": Secret("between workers", "workers 1.1.1.0 machine 0")},
        {"secret": Secret("run:1.1.1:the run's token", "workers 1.1.1.0 all")},
    ):
        assert heard(frames(bait, **whose)[0], 1) == []
    assert heard(frames(bait)[0], 1, chief=False) == []  # sent back to where it came from


def test_a_length_that_nobody_vouches_for_is_not_believed() -> None:
    """Or a few bytes would have a worker ask for all memory."""
    head = _channel._HEAD.pack(BROADCAST, _channel._PICKLE, 1 << 60)
    assert heard(head + b"x" * 100, 1) == []


# --- who gets in


class Listening:
    """A chief that waits for one worker."""

    def __init__(self, secret: Secret = SECRET) -> None:
        self.listener = _channel.listen(("127.0.0.1", 0))
        self.address = ("127.0.0.1", self.listener.getsockname()[1])
        self.found: List[Any] = []
        self.thread = threading.Thread(target=self.accept, args=(secret,))
        self.thread.start()

    def accept(self, secret: Secret) -> None:
        try:
            self.found.append(_channel.accept(self.listener, secret, ["rank 0", "rank 1"], LONG_ENOUGH))
        except RendezvousError as error:
            self.found.append(error)

    def stranger(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=LONG_ENOUGH)

    def join(self) -> _channel.Chief:
        worker = _channel.connect(self.address, SECRET, 1, 2, "rank 0", LONG_ENOUGH)
        self.thread.join()
        (chief,) = self.found
        worker.send(BROADCAST, Fine())
        assert isinstance(chief.gather(BROADCAST)[0], Fine)
        worker.close()
        assert isinstance(chief, _channel.Chief)
        return chief


def read_out(sock: socket.socket) -> None:
    """Until the other side has ended the connection."""
    with contextlib.suppress(ConnectionResetError):
        while sock.recv(100):
            pass


class Fine:
    """An object of the user's."""


def test_strangers_who_say_nothing_keep_no_worker_waiting() -> None:
    chief = Listening()
    silent = [chief.stranger() for _ in range(20)]
    chief.join().close()
    for one in silent:
        read_out(one)
        one.close()


def test_of_more_strangers_than_there_is_room_for_the_first_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_channel, "_STRANGERS", 3)
    chief = Listening()
    silent = [chief.stranger() for _ in range(6)]
    for one in silent[:3]:
        read_out(one)
    chief.join().close()
    for one in silent:
        one.close()


@pytest.mark.parametrize("token", ["run:1.1.1:the run's token", ""])
def test_a_stolen_run_token_opens_no_channel(token: str) -> None:
    chief = Listening()
    thief = Secret(token, "workers 1.1.1.0 all")
    with chief.stranger() as sock, pytest.raises((_channel._Rejected, EOFError)):
        _channel._introduce(sock, thief, 1, 2)
    with chief.stranger() as sock:
        sock.sendall(pickle.dumps(Unpickled()) * 10)
        read_out(sock)
    chief.join().close()


def test_a_worker_gives_nothing_to_a_chief_that_does_not_know_the_secret() -> None:
    """Nor does it take anything: a stranger got to the port first."""
    with socket.create_server(("127.0.0.1", 0)) as there:

        def pretend() -> None:
            with there.accept()[0] as client:
                client.sendall(b"n" * 32)
                client.recv(1000)
                client.sendall(b"p" * 32 + pickle.dumps(Unpickled()))

        thread = threading.Thread(target=pretend)
        thread.start()
        with pytest.raises(RendezvousError, match="has another key"):
            _channel.connect(there.getsockname(), SECRET, 1, 2, "rank 0", 0.01)
        thread.join()


def test_a_whole_handshake_that_was_recorded_is_no_good_again() -> None:
    chief = Listening()
    said: List[bytes] = []

    def recorded(data: bytes) -> None:
        said.append(data)
        original(data)

    with chief.stranger() as sock:
        original = sock.sendall

        class Recorder:
            def __getattr__(self, name: str) -> Any:
                return recorded if name == "sendall" else getattr(sock, name)

        _channel._introduce(Recorder(), SECRET, 1, 2)  # type: ignore[arg-type]
        chief.thread.join()
        chief.found[0].close()
    again = Listening()
    with again.stranger() as sock:
        assert len(sock.recv(100)) == 32
        sock.sendall(b"".join(said))
        assert sock.recv(100) == b""
    again.join().close()


def test_the_last_worker_to_come_is_not_shut_out_with_the_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are there once it has proved itself: whoever waits for that goes on at once, and shuts what is left at the door."""

    class Slow(threading.Condition):
        def __exit__(self, *raised: Any) -> None:
            super().__exit__(*raised)
            if threading.current_thread().name == "dethpc-acceptor":
                time.sleep(0.2)

    class Acceptor(_channel._Acceptor):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self._changed = Slow()

    monkeypatch.setattr(_channel, "_Acceptor", Acceptor)
    listener = _channel.listen(("127.0.0.1", 0))
    at = listener.getsockname()[:2]
    found: List[Channel] = []
    worker = threading.Thread(target=lambda: found.append(_channel.connect(at, SECRET, 1, 2, "rank 0", LONG_ENOUGH)))
    worker.start()
    chief = _channel.accept(listener, SECRET, ["rank 0", "rank 1"], LONG_ENOUGH)
    worker.join()
    chief.send(BROADCAST, "here")
    assert found[0].receive(BROADCAST) == "here"
    found[0].send(BROADCAST, "there")
    assert chief.gather(BROADCAST) == ["there"]
    chief.close()
    found[0].close()
