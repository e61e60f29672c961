"""Whether SQLite is safe where DETHPC_HOME lies."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts
from dethpc.doctor.finding import Finding, error, note, ok, warning
from dethpc.rundir.filesystem import is_network

CHANGE = "database: postgresql+psycopg://... in the site configuration, or DETHPC_HOME where locks work"


def check(facts: Facts) -> Iterator[Finding]:
    if facts.site.database is not None and not facts.site.database.startswith("sqlite"):
        yield ok("the database is a server's")
        return
    kind, login = facts.login.filesystem, facts.login
    if login.locks:
        yield error(f"{login.home} ({kind}) has no file locks: {login.locks}", "SQLite may not open there", CHANGE)
        return
    looked = [node for node in facts.nodes or () if not node.problem]
    bad = next((node for node in looked if node.lock != "held"), None)
    if bad is not None:
        problem = "does not feel a lock of this machine's" if bad.lock == "free" else f"cannot lock: {bad.lock}"
        yield warning(
            f"{bad.name} {problem} in {login.home} ({kind})",
            "runs one master, which alone opens the database; never start masters on two machines at once",
            f"{CHANGE}; det master up --slurm lets Slurm see to it that there is one",
        )
    elif not is_network(kind):
        yield ok(f"SQLite on {kind}")
    elif looked:
        yield note(
            f"SQLite on {kind}; locks work between {login.host} and {looked[0].name}",
            "one master at a time opens the database, under its lease",
            CHANGE,
        )
    else:
        yield warning(
            f"SQLite on {kind}: locks of network file systems may not hold",
            "one master at a time opens the database, under its lease",
            f"{CHANGE}; det doctor --check-nodes tries the locks",
        )
