"""Checks of the file systems of DETHPC_HOME and of checkpoints: locks, space, quota and permissions."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts
from dethpc.doctor.finding import Finding, error, note, ok, warning
from dethpc.rundir.filesystem import is_network

STORAGE_CHANGE = "checkpoint_storage in the site configuration, or the rights of that folder"
DATABASE_CHANGE = "database: postgresql+psycopg://... in the site configuration, or DETHPC_HOME where locks work"
GIB = 1 << 30


def storage(facts: Facts) -> Iterator[Finding]:
    """Whether checkpoints can be written where the site configuration puts them."""
    login = facts.login
    if not login.storage:
        yield ok("checkpoints go to DETHPC_HOME, unless an experiment says otherwise")
        return
    if login.storage_problem:
        yield error(
            f"nothing can be written to {login.storage} ({login.storage_problem})", "checkpoints fail", STORAGE_CHANGE
        )
        return
    looked = [node for node in facts.nodes or () if not node.problem]
    for node in looked:
        if node.storage:
            yield error(
                f"pool {node.pool}: {node.name} does not share {login.storage} with this machine ({node.storage})",
                "checkpoints fail, or are found on that node alone",
                STORAGE_CHANGE,
            )
    if not any(node.storage for node in looked):
        many = f", from {len(looked)} node{'s' if len(looked) > 1 else ''}, too" if looked else ""
        yield ok(f"{login.storage} can be written to{many}")


def database(facts: Facts) -> Iterator[Finding]:
    """Whether SQLite's file locks work where DETHPC_HOME lies."""
    if facts.site.database is not None and not facts.site.database.startswith("sqlite"):
        yield ok("the database is a server's")
        return
    kind, login = facts.login.filesystem, facts.login
    if login.locks:
        yield error(
            f"{login.home} ({kind}) has no file locks: {login.locks}", "SQLite may not open there", DATABASE_CHANGE
        )
        return
    looked = [node for node in facts.nodes or () if not node.problem]
    bad = next((node for node in looked if node.lock != "held"), None)
    if bad is not None:
        problem = "does not feel a lock of this machine's" if bad.lock == "free" else f"cannot lock: {bad.lock}"
        yield warning(
            f"{bad.name} {problem} in {login.home} ({kind})",
            "runs one master, which alone opens the database; never start masters on two machines at once",
            f"{DATABASE_CHANGE}; det master up --slurm lets Slurm see to it that there is one",
        )
    elif not is_network(kind):
        yield ok(f"SQLite on {kind}")
    elif looked:
        yield note(
            f"SQLite on {kind}; locks work between {login.host} and {looked[0].name}",
            "one master at a time opens the database, under its lease",
            DATABASE_CHANGE,
        )
    else:
        yield warning(
            f"SQLite on {kind}: locks of network file systems may not hold",
            "one master at a time opens the database, under its lease",
            f"{DATABASE_CHANGE}; det doctor --check-nodes tries the locks",
        )


def disk(facts: Facts) -> Iterator[Finding]:
    """Free space and inodes where DETHPC_HOME lies, and where nodes unpack."""
    login = facts.login
    change = "make room, delete checkpoints (det checkpoint), or name other checkpoint_storage"
    if login.free_bytes is not None:
        space = f"{login.free_bytes / GIB:.1f} GiB free for {login.home}"
        if login.free_bytes < GIB:
            yield error(space, "a full disk stops the master; trials wait or go on by HTTP alone", change)
        elif login.free_bytes < 10 * GIB:
            yield warning(space, "", change)
        else:
            yield ok(space)
    if login.free_files is not None and login.free_files < 100_000:
        level = error if login.free_files < 1000 else warning
        yield level(
            f"{login.free_files} more files fit on the file system of {login.home}",
            "needs about 20 for each run",
            change,
        )
    for node in facts.nodes or ():
        if node.free_bytes is not None and node.free_bytes < GIB:
            yield warning(
                f"{node.name}: {node.free_bytes / GIB:.1f} GiB where contexts are unpacked",
                "",
                "export TMPDIR or DETHPC_WORKDIR_BASE in pools.prologue",
            )


def quota(facts: Facts) -> Iterator[Finding]:
    """The user's quota where DETHPC_HOME lies."""
    if facts.login.quota:
        yield warning(
            f"quota: {facts.login.quota} used",
            "reports of trials go by HTTP alone when files cannot grow; checkpoints fail",
            "make room, or name other checkpoint_storage",
        )
    else:
        yield ok("no quota is nearly used up, as far as quota(1) knows")


def umask(facts: Facts) -> Iterator[Finding]:
    """Whether other users can read the user's files."""
    login = facts.login
    clean = True
    if login.token_mode is not None and login.token_mode & 0o077:
        clean = False
        yield error(
            f"{login.home}/token may be read by others (mode {login.token_mode:04o}): whoever reads it can act as you",
            "the next master makes it 0600",
            "delete it and det master down: the next master makes a new one",
        )
    if login.home_mode is not None and login.home_mode & 0o077:
        clean = False
        yield warning(
            f"{login.home} is open to others (mode {login.home_mode:04o})", "the next master makes it 0700", "chmod 700"
        )
    if clean:
        yield ok(f"umask {login.umask:04o}", "makes its own files 0600 and folders 0700 whatever the umask is")
