"""An id is given once: at whichever write a master or a rebuild is killed, and whichever database is left."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dethpc.domain.facts import Experiment, Run, Trial
from dethpc.engine import step
from dethpc.errors import Refused
from dethpc.master.durable import ids
from dethpc.master.durable.change_log import ChangeLog
from dethpc.master.durable.ledger import Ledger
from dethpc.master.installation import cluster_id
from dethpc.master.rebuild import rebuild
from dethpc.rundir.home import Home
from dethpc.searcher.methods import build
from dethpc.state import open_store
from tests.master.durable.test_ledger import creation
from tests.simulator.world.disk import Disk, Killed, watched


class Site:
    """A home, and the ids of which somebody has heard."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder)
        self.home.make()
        cluster_id(self.home)
        self.disk = Disk(str(folder), random.Random(0))
        self.answered: set[tuple[type, int | str]] = set()

    def serve(self, experiments: int) -> None:
        """A master that creates so many experiments, in the order of the ledger: announced, committed, appended, answered."""
        with open_store(str(self.home.root / "dethpc.db")) as store:
            ids.check(self.home, store)
            changes = ChangeLog(self.home)
            changes.catch_up(store)
            state = Ledger(store, build).state
            for _ in range(experiments):
                rows = step(state, creation())
                changes.announce(rows)
                self.disk.point()
                store.commit(rows)
                self.disk.point()
                changes.append(rows)
                keys = {(type(row), row.id) for row in rows if isinstance(row, (Experiment, Trial, Run))}
                assert not keys & self.answered, "an id was given twice"
                self.answered |= keys
                for row in rows:
                    if isinstance(row, Run):
                        self.home.run(row.id).make()

    @contextmanager
    def killed_at(self, write: int) -> Iterator[None]:
        self.disk.strike("it", write, self.disk.kill)
        with watched(self.disk), self.disk.acting("it"):
            yield
        self.disk.spare()

    def go_on(self) -> None:
        """What a person does: start a master, rebuild where it says so, and create experiments."""
        try:
            self.serve(1)
        except Refused as refused:
            assert "det master rebuild" in str(refused)
            rebuild(self.home.root)
            self.serve(1)
        self.serve(1)


def killed_at_each_write(site: Site, act: Callable[[], object], before_the_next_start: Callable[[], None]) -> None:
    """``act`` again and again from the same files, and killed one write later each time; until it comes to its end."""
    folder, answered = site.home.root.with_name("before"), set(site.answered)
    shutil.copytree(site.home.root, folder)
    for write in range(1, 1000):
        shutil.rmtree(site.home.root)
        shutil.copytree(folder, site.home.root)
        site.answered = set(answered)
        try:
            with site.killed_at(write):
                act()
        except Killed:
            before_the_next_start()
            site.go_on()
        else:
            assert write > 10
            return
    raise AssertionError("it never comes to its end")


@pytest.mark.slow
@pytest.mark.parametrize("database", ["the one that it left", "none", "a copy from before"])
def test_no_id_is_given_twice_at_whichever_write_a_master_is_killed(database: str, tmp_path: Path) -> None:
    site = Site(tmp_path / "home")
    site.serve(1)
    path = site.home.root / "dethpc.db"
    shutil.copy2(path, tmp_path / "copy")

    def replaced() -> None:
        if database != "the one that it left":
            for file in site.home.root.glob("dethpc.db*"):
                file.unlink()
        if database == "a copy from before":
            shutil.copy2(tmp_path / "copy", path)

    killed_at_each_write(site, lambda: site.serve(1), replaced)


@pytest.mark.slow
def test_no_id_is_given_twice_at_whichever_write_a_rebuild_is_killed(tmp_path: Path) -> None:
    site = Site(tmp_path / "home")
    site.serve(3)
    (site.home.root / "dethpc.db").unlink()
    site.home.changes(3).unlink()  # the last one, which cannot be recreated
    # The lease names this process, which lives.
    killed_at_each_write(site, lambda: rebuild(site.home.root), lambda: site.home.master_file.unlink(missing_ok=True))
