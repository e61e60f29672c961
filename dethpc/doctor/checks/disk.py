"""Space and files left where DETHPC_HOME lies, and where nodes unpack."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts
from dethpc.doctor.finding import Finding, error, ok, warning

GIB = 1 << 30


def check(facts: Facts) -> Iterator[Finding]:
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
