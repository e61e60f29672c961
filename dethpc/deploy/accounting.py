"""Accounting for a private cluster: a MariaDB of its own and slurmdbd, so that ``sacct`` has records."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from dethpc.errors import DethpcError

INSTALL = "apt-get install -y --no-install-recommends slurmdbd mariadb-server"
_PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db", "sacctmgr")


def installed(path: str) -> bool:
    return all(shutil.which(name, path=path) for name in _PROGRAMS)


def require_programs(path: str) -> None:
    """Raises DethpcError when a program is missing."""
    missing = [name for name in _PROGRAMS if not shutil.which(name, path=path)]
    if missing:
        raise DethpcError(f"accounting needs {', '.join(missing)}, not installed here; on Debian or Ubuntu: {INSTALL}")


def slurm_conf(folder: Path, port: int) -> Iterator[str]:
    yield "AccountingStorageType=accounting_storage/slurmdbd"
    yield "AccountingStorageHost=127.0.0.1"
    yield f"AccountingStoragePort={port}"
    yield "AccountingStorageEnforce=associations,limits,qos"
    yield f"AccountingStoragePass={folder}/run/munge.socket"


def write(folder: Path, port: int, user: str) -> None:
    """Write slurmdbd's configuration and the options of its database, which listens on a Unix socket alone."""
    conf = folder / "slurmdbd.conf"
    conf.touch(mode=0o600)  # slurmdbd refuses one that others may read
    conf.write_text(
        f"DbdHost=localhost\nDbdAddr=127.0.0.1\nDbdPort={port}\nSlurmUser={user}\n"
        f"AuthType=auth/munge\nAuthInfo=socket={folder}/run/munge.socket\n"
        f"PidFile={folder}/run/slurmdbd.pid\nLogFile={folder}/log/slurmdbd.log\n"
        f"StorageType=accounting_storage/mysql\nStorageHost=localhost\nStorageUser={user}\nStorageLoc=slurm_acct_db\n"
    )
    (folder / "mariadb.cnf").write_text(
        f"[server]\ndatadir={folder}/mariadb\nuser={user}\nsocket={folder}/run/mariadb.socket\nskip-networking\n"
        f"pid-file={folder}/run/mariadbd.pid\nlog-error={folder}/log/mariadbd.log\n"
        "innodb-flush-log-at-trx-commit=0\ninnodb-buffer-pool-size=16M\n"
    )


def start(folder: Path, daemon: Callable[[list[str], str], None]) -> None:
    """Start MariaDB and slurmdbd. ``daemon`` starts one that puts itself into the background, by command and name."""
    options = f"--defaults-file={folder}/mariadb.cnf"
    subprocess.run(
        ["mariadb-install-db", options, "--auth-root-authentication-method=socket", "--skip-test-db"],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    # MariaDB does not put itself into the background.
    daemon(["setsid", "--fork", "mariadbd", options], "mariadbd")
    daemon(["slurmdbd"], "slurmdbd")
    # slurmctld gives up when slurmdbd does not answer at its first start, and slurmdbd makes its tables first.
    port = int(re.findall(r"DbdPort=(\d+)", (folder / "slurmdbd.conf").read_text())[0])
    end = time.monotonic() + 60
    while not _listens(port):
        if time.monotonic() > end:
            raise DethpcError("slurmdbd does not listen")
        time.sleep(0.05)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def register(run: Callable[..., str], user: str, accounts: Mapping[str, Sequence[str]]) -> None:
    """Make the cluster and its user known, who may use these accounts and in each these QOS; the first account is the default.

    Jobs of unknown users are accounted too, but limits need an association.
    """

    def add(*arguments: str) -> None:
        run("sacctmgr", "--immediate", *arguments, check=False)

    for name in dict.fromkeys(name for names in accounts.values() for name in names):
        add("add", "qos", name)
    for account, names in accounts.items():
        qos = [f"qos=normal,{','.join(names)}"] if names else []
        add("add", "account", account)
        add("add", "user", user, f"account={account}", f"defaultaccount={next(iter(accounts))}", *qos)
