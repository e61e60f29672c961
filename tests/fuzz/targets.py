"""What takes in bytes that somebody else wrote, each as a function of them: it may refuse them in its own words, and does no harm.

A target raises when something else happens. ``SEEDS`` are sound inputs; hypothesis alters them (``altered``).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import socket
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from hypothesis import strategies as st

from dethpc.client import proof
from dethpc.client.http1 import Connection
from dethpc.config.loading import load
from dethpc.config.secrets import masked_text
from dethpc.config.site import parse_site
from dethpc.core import _channel
from dethpc.domain.attempts.end_report import EndReport
from dethpc.domain.reports import Report, ReportKind, fault
from dethpc.errors import ConfigError, DethpcError, RunDirError
from dethpc.exec.link import Link
from dethpc.exec.setup.unpack import unpack
from dethpc.master.durable import row_file
from dethpc.master.files import logs
from dethpc.master.files.logs import Filter
from dethpc.master.http.nouns.logs import LogEntry
from dethpc.rundir import journal, logline
from dethpc.rundir.claim import claimed_by
from dethpc.rundir.files import read_json
from dethpc.rundir.layout import RunDir
from dethpc.rundir.secret import Secret
from dethpc.rundir.spec import Spec
from dethpc.rundir.started import Started

Target = Callable[[bytes, Path], None]


def of_journal(data: bytes, folder: Path) -> None:
    """By pieces or at once, live or over, the same reports come, and each can be judged."""
    path = folder / "journal.jsonl"
    path.write_bytes(data)
    reports, offset = journal.read(path)
    by_pieces: list[Report] = []
    at = 0
    while (found := journal.read(path, at, len(by_pieces), 40))[1] > at:
        by_pieces, at = by_pieces + found[0], found[1]
    assert by_pieces == reports and at == offset <= len(data)
    remains, rest = journal.read_remains(path), journal.RemainsReader(path, damaged=[])
    seen: list[Report] = []
    while not rest.whole:
        seen += rest.read(7)
    assert (seen, rest.offset, rest.missing) == remains and seen[: len(reports)] == reports
    for report in seen:
        fault(report)
    with journal.JournalWriter(path) as writer, contextlib.suppress(OSError):
        writer.append(ReportKind.PROGRESS, {"progress": 1.0})


def of_run_directory(data: bytes, folder: Path) -> None:
    """``spec.json``, ``claim``, ``started.json`` and ``end.json`` of any content."""
    run = RunDir(folder)
    for path, take in (
        (run.spec, Spec.from_json),
        (run.attempt(0).started, Started.from_json),
        (run.attempt(0).end, EndReport.from_json),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        with contextlib.suppress(RunDirError):
            if (found := read_json(path)) is not None:
                take(found)
    run.claim.write_bytes(data)
    with contextlib.suppress(RunDirError):
        claimed_by(run)


def of_archive(data: bytes, folder: Path) -> None:
    """Nothing lands outside the directory, and no link in it leads there."""
    archive, inside = folder / "a.tar", folder / "outer" / "inside"
    inside.mkdir(parents=True)
    archive.write_bytes(data)
    with contextlib.suppress(RunDirError, OSError):
        unpack(str(archive), str(inside), max_bytes=1 << 20, max_members=100)
    assert sorted(os.listdir(folder)) == ["a.tar", "outer"] and os.listdir(folder / "outer") == ["inside"]
    for root, folders, files in os.walk(inside):
        for name in (*folders, *files):
            path = os.path.join(root, name)
            if os.path.islink(path):
                whole = os.path.normpath(os.path.join(root, os.readlink(path)))
                assert os.path.commonpath([whole, str(inside)]) == str(inside), path


def of_configuration(data: bytes, folder: Path) -> None:
    text = data.decode("utf-8", "replace")
    for take in (load, parse_site):
        with contextlib.suppress(ConfigError):
            take(text)  # type: ignore[operator]
    masked_text(text)


def of_log(data: bytes, folder: Path) -> None:
    """Either end gives the same lines, each of which can be sent."""
    attempt = RunDir(folder / "1.1.1").attempt(0)
    attempt.make()
    attempt.log(0).write_bytes(data)
    with contextlib.suppress(ValueError):
        logline.parse(data.decode("utf-8", "replace"))
    sources = logs.sources(lambda run: RunDir(folder / run), ["1.1.1"])
    forward, backward = (
        list(logs.read(sources, Filter(), newest_first=newest_first)) for newest_first in (False, True)
    )
    assert forward == backward[::-1]
    for line in forward:
        LogEntry.of(line, 1, "t").model_dump_json(by_alias=True)


def of_rows(data: bytes, folder: Path) -> None:
    """A change log."""
    for line in data.splitlines():
        with contextlib.suppress(ValueError, DethpcError):
            row_file.from_line(line)


def of_proof(data: bytes, folder: Path) -> None:
    """No answer of a server's that does not know the token proves that it does."""
    ours, theirs = socket.socketpair()
    ours.settimeout(5)
    seen = mock.Mock(wraps=ours)
    seen.getpeername.return_value = ("127.0.0.1", 1)
    del seen.getpeercert
    connection = Connection(seen, "127.0.0.1")
    theirs.sendall(data[: 1 << 16])
    theirs.shutdown(socket.SHUT_WR)
    token = proof.proved_token("run:1.1.1:secret")
    assert token is not None
    with contextlib.suppress(OSError):
        assert not proof.is_proved(connection, "", token)
    connection.close()
    for each in (ours, theirs):
        each.close()
    with contextlib.suppress(ValueError):
        proof.proof("key", data.decode("latin-1"), ("127.0.0.1", 1))


def of_answer(data: bytes, folder: Path) -> None:
    """Of an HTTP server: no more is read of it than has come, and what is wrong with it is an error of the network."""
    ours, theirs = socket.socketpair()
    ours.settimeout(5)
    theirs.sendall(data[: 1 << 16])
    theirs.shutdown(socket.SHUT_WR)
    connection, read = Connection(ours, "login1"), 0
    with contextlib.suppress(OSError):  # HttpError, or that the answer before has ended the connection
        for method in ("GET", "HEAD", "GET"):
            connection.request(method, "/", {})
            read += len(connection.answer().read())
    assert read <= len(data)
    connection.close()
    theirs.close()


def of_channel(data: bytes, folder: Path) -> None:
    """Of a stranger nothing is unpickled: as a worker that joins, as the chief, and in the middle of a session."""
    secret = Secret("between workers", "workers")

    def taken(receive: Callable[[socket.socket], object]) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(data[: 1 << 16])
            theirs.shutdown(socket.SHUT_WR)
            with contextlib.suppress(OSError, EOFError, _channel._Rejected, _channel.struct.error):
                receive(ours)
                raise AssertionError("a stranger was believed")

    with mock.patch.object(pickle, "loads", side_effect=AssertionError("unpickled")):
        taken(lambda sock: _channel._caller(sock, secret, 2))
        taken(lambda sock: _channel._introduce(sock, secret, 1, 2))
        taken(lambda sock: _channel.Channel(sock, secret.seal(True, b"words"), "rank 1").receive(0))


def of_link(data: bytes, folder: Path) -> None:
    """Messages between nodes: whole ones, or the link is lost."""
    server = socket.create_server(("127.0.0.1", 0))
    theirs = socket.create_connection(server.getsockname())
    ours, _ = server.accept()
    with server, theirs, ours:
        sender = threading.Thread(target=lambda: (theirs.sendall(data), theirs.shutdown(socket.SHUT_WR)))
        sender.start()
        link = Link(ours)
        while not link.lost:
            assert all(isinstance(message, dict) for message in link.receive())
        ours.close()
        sender.join()


def _journal() -> bytes:
    reports = [
        Report(1, 1.0, ReportKind.METRICS, {"group": "validation", "steps_completed": 1, "metrics": {"loss": 1.0}}),
        Report(2, 2.0, ReportKind.CHECKPOINT, {"uuid": "u", "steps_completed": 1, "resources": {"a": 1}}),
        Report(3, 3.0, ReportKind.STATUS, {"status": "é"}),
    ]
    return b"".join(journal.to_line(report).encode() + b"\n" for report in reports)


def _archive() -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for name, kind, link in (
            ("a", tarfile.DIRTYPE, ""),
            ("a/f", tarfile.REGTYPE, ""),
            ("a/l", tarfile.SYMTYPE, "f"),
            ("h", tarfile.LNKTYPE, "a/f"),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, link
            member.size = 3 if kind == tarfile.REGTYPE else 0
            tar.addfile(member, io.BytesIO(b"abc"))
    return raw.getvalue()


def _plain_archive() -> bytes:
    import gzip

    return gzip.decompress(_archive())


_CONFIG = b"""name: n
entrypoint: python3 t.py
searcher: {name: adaptive_asha, metric: loss, max_trials: 4, time_metric: batches, max_time: 100}
hyperparameters: {lr: {type: log, base: 10, minval: -4, maxval: 0}, n: {type: int, minval: 1, maxval: 9}, c: [1, &a b, *a]}
environment: {environment_variables: [A_TOKEN=x]}
"""
_SITE = b"cluster_name: c\nslurm: {resource_pools: [{pool_name: a, partition: b}]}\nmaster: {port: 8080}\n"
_JSON = json.dumps(
    {"job_id": "1", "nodes": ["a"], "prior": {"0": 1}, "at": 1.0, "tail": ["x"], "exit_code": 1}
).encode()
_LOG = b"2025-11-13T02:13:20.000Z\tINFO\t0\tstdout\thello\n2025-11-13T02:13:21.123Z\tERROR\t-\tstderr\tx\xff\r y\ntorn 2025-"
_ANSWER = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{"proof":"0"}'
_CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;a=b\r\nabcd\r\n0\r\nX: y\r\n\r\n"
_ROW = b'{"table": "Node", "key": ["a"], "row": {"name": "a"}}\n'

TARGETS: dict[str, tuple[Target, list[bytes]]] = {
    "journal": (of_journal, [_journal(), _journal() + b"\0" * 40 + _journal()]),
    "run directory": (of_run_directory, [_JSON, b"[" * 3000]),
    "archive": (of_archive, [_archive(), _plain_archive()]),
    "configuration": (of_configuration, [_CONFIG, _SITE]),
    "log": (of_log, [_LOG]),
    "rows": (of_rows, [_ROW]),
    "proof": (of_proof, [_ANSWER, b"0" * 64]),
    "answer": (of_answer, [_ANSWER, _CHUNKS, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 OK\r\n\r\nhello"]),
    "channel": (of_channel, [b"\0" * 100, pickle.dumps([1])]),
    "link": (of_link, [b'{"a": 1}\n{"b": [2]}\n', b"[" * 3000 + b"\n"]),
}

_TOKENS = [b"\0", b"\n", b"[" * 2000, b"{", b'"', b"NaN", b"1e999", b"-1", b"9" * 400]
_TOKENS += [b"../", b"/etc/", b"\xff", b"\xed\xa0\x80", b"&a", b"*a"]


@st.composite
def altered(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """Bytes of any kind, or a sound input after some cuts, copies, flips and insertions."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=600))
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.integers(0, 40)))
        kind = draw(st.sampled_from(["flip", "cut", "copy", "insert", "token"]))
        if kind == "flip" and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "cut":
            del data[at:end]
        elif kind == "copy":
            data[at:at] = data[at:end] * draw(st.integers(1, 20))
        elif kind == "insert":
            data[at:at] = draw(st.binary(max_size=20))
        elif kind == "token":
            data[at:at] = draw(st.sampled_from(_TOKENS))
    return bytes(data)
