"""A master whose parts fail ends, and says why."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from dethpc.config.site import SiteConfig
from dethpc.domain.facts import Row
from dethpc.errors import MasterError, StoreError
from dethpc.master import heartbeat, listening, watchdog
from dethpc.master.daemon import Daemon
from dethpc.master.durable import ledger
from dethpc.master.installation import cluster_id
from dethpc.master.scheduler import find_scheduler
from dethpc.rundir.files import write_json
from dethpc.rundir.home import Home
from tests.master.durable.test_ledger import creation
from tests.waiting import LONG_ENOUGH, wait_until


class Serving:
    def __init__(self, daemon: Daemon) -> None:
        self.daemon, self.failure = daemon, ""
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()
        wait_until(lambda: daemon._server is not None and daemon._server.started)

    def _serve(self) -> None:
        try:
            self.daemon.serve(listening.named("127.0.0.1", "a test"), 0)
        except MasterError as error:
            self.failure = str(error)


@pytest.fixture
def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    monkeypatch.setenv("DETHPC_SCHEDULER", "local")
    monkeypatch.setattr(watchdog, "WATCH", 0.05)
    monkeypatch.setattr(ledger, "FOLD_PAUSES", (0.0,))
    home = Home(tmp_path / "home")
    home.make()
    scheduler, pace = find_scheduler(home, SiteConfig())
    made = Serving(Daemon(home, SiteConfig(), scheduler, cluster_id(home), pace))
    yield made
    made.daemon.stop()
    made.thread.join(LONG_ENOUGH)
    assert not made.thread.is_alive()


def test_a_master_that_comes_back_has_the_port_it_had_unless_another_took_it(
    serving: Serving,
) -> None:
    """Open pages, bookmarks and what ``det ui`` printed go on to lead there."""

    def again() -> Serving:
        scheduler, pace = find_scheduler(home, SiteConfig())
        return Serving(Daemon(home, SiteConfig(), scheduler, cluster_id(home), pace))

    def ended(one: Serving) -> int:
        port = urlsplit(json.loads(home.master_file.read_text())["url"]).port
        one.daemon.stop()
        one.thread.join(LONG_ENOUGH)
        assert port is not None
        return port

    home = serving.daemon.installation.home
    first = ended(serving)
    assert ended(again()) == first
    with socket.create_server(("127.0.0.1", first)):
        second = ended(again())
    assert second != first
    assert ended(again()) == second, "the last one"


def die() -> None:
    raise SystemExit


def a_database_that_fails(serving: Serving) -> None:
    def fail(*_: object) -> None:
        raise StoreError("input/output error")

    serving.daemon.store.load = fail  # type: ignore[method-assign]
    serving.daemon.store.before_commit = fail
    wish = serving.daemon.ledger.post(creation())
    assert isinstance(wish.exception(30), StoreError)


def a_dead_reconciler(serving: Serving) -> None:
    serving.daemon._reconciler.cycle = die  # type: ignore[method-assign]
    serving.daemon._reconciler._runs.changed.set()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("breaks", "words"), [(a_database_that_fails, "ledger cannot go on"), (a_dead_reconciler, "reconciler has died")]
)
def test_a_master_that_cannot_go_on_ends_and_leaves_its_place_to_the_next(
    serving: Serving, breaks: Callable[[Serving], None], words: str
) -> None:
    breaks(serving)
    serving.thread.join(LONG_ENOUGH)
    assert not serving.thread.is_alive() and words in serving.failure
    assert json.loads(serving.daemon.installation.home.master_file.read_text())["pid"] == 0


def test_a_master_that_stood_still_after_a_commit_writes_nothing_behind_the_rows_of_the_one_that_took_over(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, home = serving.daemon, serving.daemon.installation.home
    commit = daemon.store.commit

    def stand_still(rows: Sequence[Row]) -> None:
        commit(rows)
        held = json.loads(home.master_file.read_text())
        write_json(home.master_file, {**held, "generation": held["generation"] + 1})
        daemon.lease._checked_at = -1e9  # it looked long ago

    monkeypatch.setattr(daemon.store, "commit", stand_still)
    daemon.ledger.post(creation())
    serving.thread.join(LONG_ENOUGH)
    assert not serving.thread.is_alive()
    assert not home.changes(1).exists()


def stuck(serving: Serving) -> threading.Event:
    """The ledger is in the middle of something until the event is set."""
    goes_on, begun = threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        begun.set()
        goes_on.wait(LONG_ENOUGH)

    serving.daemon.ledger.listen(hang)
    serving.daemon.ledger.post(creation())
    assert begun.wait(LONG_ENOUGH)
    wait_until(lambda: serving.daemon.ledger.heartbeat.silent > 1.0)
    return goes_on


def test_a_thread_that_does_not_go_on_is_spoken_of(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    installation = serving.daemon.installation
    goes_on = stuck(serving)
    monkeypatch.setattr(watchdog, "SILENCE", 1.0)
    wait_until(lambda: "its ledger has been stuck for" in installation.trouble)
    held = json.loads(installation.home.master_file.read_text())
    with urllib.request.urlopen(f"{held['url']}/api/v1/master", timeout=30) as answer:
        assert json.load(answer)["trouble"] == installation.trouble
    goes_on.set()
    monkeypatch.setattr(watchdog, "SILENCE", 60.0)
    wait_until(lambda: installation.trouble == "")
    assert serving.thread.is_alive() and serving.failure == ""


@pytest.mark.parametrize("what", ["its lease", "its database"])
def test_a_master_that_cannot_write_says_so_until_it_can(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """What it answers then was so before: trainings may have ended since."""
    daemon, installation = serving.daemon, serving.daemon.installation

    def read_only(*_: object) -> None:
        if what == "its database":
            raise StoreError("the database failed: attempt to write a readonly database\nmake it writable again")
        raise OSError(errno.EROFS, "Read-only file system", str(installation.home.master_file))

    with monkeypatch.context() as patched:
        patched.setattr(daemon._reconciler, "cycle", read_only)
        daemon._reconciler._runs.changed.set()
        wait_until(lambda: "cannot write (" in installation.trouble)
        assert ("master.json: Read-only" if what == "its lease" else "readonly database)") in installation.trouble
        assert installation.trouble.endswith("states are shown as last written. Trials continue")
    daemon._reconciler._runs.changed.set()
    wait_until(lambda: installation.trouble == "")


def test_a_master_says_that_its_disk_is_full_before_it_has_failed_to_write(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, installation = serving.daemon, serving.daemon.installation
    root, ask = installation.home.root, os.statvfs

    def full(path: Any) -> os.statvfs_result:
        fields = list(ask(path))
        fields[3] = fields[4] = 0  # the blocks that are free, and those that an ordinary user may have of them
        return os.statvfs_result(fields)

    with monkeypatch.context() as patched:
        patched.setattr(os, "statvfs", full)
        daemon._reconciler._runs.changed.set()
        wait_until(lambda: f"cannot write ({root}: No space left on device)" in installation.trouble)
    daemon._reconciler._runs.changed.set()
    wait_until(lambda: installation.trouble == "")


def test_a_master_whose_thread_is_stuck_for_good_ends(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = stuck(serving)
    monkeypatch.setattr(watchdog, "LONGEST_SILENCE", 1.0)
    monkeypatch.setattr(watchdog, "SILENCE", 1.0)
    wait_until(lambda: serving.daemon._stopped.is_set())
    goes_on.set()
    wait_until(lambda: "the thread of the ledger is stuck for" in serving.failure)


def test_a_thread_that_waits_for_a_disk_is_waited_for(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disks of this machine answer."""
    monkeypatch.setattr(heartbeat.Heartbeat, "waits_for_a_disk", True)
    goes_on = stuck(serving)
    monkeypatch.setattr(watchdog, "LONGEST_SILENCE", 1.0)
    monkeypatch.setattr(watchdog, "SILENCE", 1.0)
    wait_until(lambda: "it waits for a disk or file server" in serving.daemon.installation.trouble)
    assert not serving.daemon._stopped.is_set()
    goes_on.set()
    monkeypatch.setattr(watchdog, "SILENCE", 60.0)
    wait_until(lambda: serving.daemon.installation.trouble == "")


def test_an_answer_is_not_kept_back_until_its_first_half_is_acknowledged() -> None:
    with listening.listen(["127.0.0.1"], 0)[0] as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
