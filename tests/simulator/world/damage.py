"""Files that are damaged, and databases that are lost or replaced by older copies."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from dethpc.errors import DethpcError
from dethpc.master.rebuild import rebuild
from dethpc.rundir.layout import RunDir
from tests.simulator.world.disk import Killed

if TYPE_CHECKING:
    from tests.simulator.world.story import Story

LOGS = ("-wal", "-shm")

REFUSALS = 20
"""How many times in a row a master may refuse to start: a rebuild can be killed, or find the disk full."""


class Damage:
    def __init__(self, story: Story, rng: random.Random) -> None:
        self._story, self._rng = story, rng
        self._backups: list[Path] = []
        self._refusals = self._started = 0

    # --- files

    def some_file(self) -> bool:
        """A bit flips in a file of a run that lives, or the file is cut off."""
        files = [path for run in self._live() for path in self._files(run)]
        if not files:
            return False
        path = self._rng.choice(files)
        data = bytearray(path.read_bytes())
        if not data:
            return False
        if path.name == "journal.jsonl":
            return self._journal(path, data)
        if self._rng.random() < 0.7:
            data[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)
        else:
            del data[self._rng.randrange(len(data)) :]
        path.write_bytes(data)
        self._story.say(f"damage to {path.relative_to(self._story.folder)}")
        return True

    def some_journal(self) -> bool:
        journals = [path for run in self._live() for path in self._files(run) if path.name == "journal.jsonl"]
        journals = [path for path in journals if path.stat().st_size]
        if not journals:
            return False
        path = self._rng.choice(journals)
        return self._journal(path, bytearray(path.read_bytes()))

    def some_checkpoint(self) -> bool:
        """Of a trial that lives, the one that it would go on from: a bit flips, or it is gone. Mostly its training ends then."""
        master = self._story.master
        trials = [] if master is None else [t for e in master.ledger.state.experiments.values() for t in e.trials]
        uuids = [t.latest_checkpoint for t in trials if t.latest_checkpoint and not t.state.terminal]
        folders = [path for uuid in uuids if (path := self._story.home.checkpoints / uuid).is_dir()]
        if not folders:
            return False
        folder = self._rng.choice(folders)
        self._story.spoiled_checkpoints.add(folder.name)
        if self._rng.random() < 0.4:
            shutil.rmtree(folder)
        else:
            held = bytearray((folder / "chain.json").read_bytes())
            held[self._rng.randrange(len(held))] ^= 1 << self._rng.randrange(8)
            (folder / "chain.json").write_bytes(held)
        for job in self._story.slurm.running() if self._rng.random() < 0.7 else ():
            if folder.name.startswith(f"{job.run_dir.name.rpartition('.')[0]}."):
                job.process.end(137)
        return True

    def garbage(self) -> bool:
        """What no master wrote is in a change log: it costs nothing but itself."""
        logs = sorted(self._story.home.experiments.glob("*/changes.jsonl"))
        if not logs:
            return False
        with open(self._rng.choice(logs), "ab") as file:
            file.write(b"\n\xff\xfe\x00garbage\n[1, 2]\n{}\n")
        return True

    def _journal(self, path: Path, data: bytearray) -> bool:
        at = self._rng.randrange(len(data))
        trial = path.parents[2].name.rpartition(".")[0]
        self._story.judge.damaged[trial] += 2 if data[at] == ord("\n") else 1
        with open(path, "r+b") as file:
            file.seek(at)
            file.write(bytes([data[at] ^ 1 << self._rng.randrange(8)]))
        self._story.say(f"damage to {path.relative_to(self._story.folder)}")
        return True

    def _live(self) -> Iterator[RunDir]:
        master = self._story.master
        if master is not None:
            yield from (self._story.home.run(id) for id in list(master.ledger.state.runs))

    def _files(self, run: RunDir) -> Iterator[Path]:
        for path in (run.claim, run.spec, run.closed, run.path / "submitting"):
            if path.exists():
                yield path
        for k in run.attempts():
            attempt = run.attempt(k)
            for path in (attempt.journal, attempt.journal, attempt.journal, attempt.started, attempt.end, attempt.stop):
                if path.exists():
                    yield path

    def tail_lost(self) -> bool:
        """A node crashes, and what it had not brought to disk is gone."""
        story = self._story
        jobs = [job for job in story.slurm.running() if job.process.trains]
        if not jobs:
            return False
        job = self._rng.choice(jobs)
        process = job.process
        node = next(node for node in story.slurm.nodes_ if job.record.nodes == (node.name,))
        story.slurm.lose_node(node, zombies=False, requeue=self._rng.random() < 0.7)
        journal = process.run_dir.attempt(process.k).journal
        if journal.exists():
            size, synced = journal.stat().st_size, story.synced.get(str(journal), 0)
            if size > synced:
                os.truncate(journal, self._rng.randint(synced, size))
                story.judge.cut.add((process.run_id, process.k))

        def repair() -> None:
            node.up = True
            story.slurm.start_jobs()

        story.clock.after(self._rng.uniform(10, 300), repair)
        return True

    # --- the database

    def back_up(self) -> None:
        path = self._story.folder.with_name(f"{self._story.folder.name}-{len(self._backups)}.db")
        with (
            closing(sqlite3.connect(self._story.home.database)) as source,
            closing(sqlite3.connect(path)) as target,
        ):
            source.backup(target)
        self._backups.append(path)

    def forget_backups(self) -> None:
        for path in self._backups:
            path.unlink(missing_ok=True)

    def restore(self) -> bool:
        """The master ends, and an older copy of its database is put in the place of the present one."""
        if not self._backups or self._story.frozen is not None:
            return False
        self._replace(self._rng.choice(self._backups))
        return True

    def delete_database(self) -> bool:
        if self._story.frozen is not None:
            return False
        self._replace(None)
        return True

    def _replace(self, by: Path | None) -> None:
        story, path = self._story, self._story.home.database
        story.lose_master(away=1.0)
        story.database.close()
        for name in (path, *(path.with_name(path.name + suffix) for suffix in LOGS)):
            name.unlink(missing_ok=True)
        if by is not None:
            path.write_bytes(by.read_bytes())
        story.open_database(fresh=by is None)

    def rebuild(self, why: str) -> None:
        """What the refusal asks for; it may be killed as well."""
        story = self._story
        self._refusals = self._refusals + 1 if story.started == self._started else 1
        self._started = story.started
        if "rebuild" not in why or self._refusals > REFUSALS:
            story.judge.fail(f"a master refuses to start, and nothing helps: {why}")
        story.count("rebuild")
        story.database.close()
        if self._rng.random() < 0.3 and not story.calm:
            story.disk.strike("master", self._rng.randint(1, 60), story.disk.kill)
        story.host.new_process()
        again = False
        try:
            with story.disk.acting("master"):
                made, _ = rebuild(story.home.root)
            # It has said what the disk kept from it, and ended with 1.
            again = bool(made.unreadable) or any("cannot be read" in why for why in made.lost.values())
        except Killed:
            story.count("rebuild killed")
        except (DethpcError, OSError) as error:
            story.say(f"rebuild: {error}")
        story.host.alive.discard(story.host.pid)
        story.disk.spare()
        if again:
            story.count("rebuild begun again")
        story.open_database(fresh=again)  # nobody serves what lacks so much: the next start asks for a rebuild, too
