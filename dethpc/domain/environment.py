"""The environment that an experiment's jobs run in: which variables of a shell go with an experiment, and the file that holds them.

The file is a list of entries, each ended by NUL, as ``env -0`` writes it: bash reads it without help, whatever bytes a value holds.
Its first entry is no variable but a JSON object, which says what is told of the environment, and the SHA-256 of what follows.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Dict, Mapping

MOST_BYTES = 512 << 10
"""All entries together. A Linux kernel starts no process with more than 2 MiB."""

_ONE_ENTRY = 128 << 10
"""What a Linux kernel takes, the NUL that ends it included."""

# What belongs to the session, the machine or the job in which somebody typed, and to nothing that runs elsewhere or later.
_OTHERS = (
    ("DET_", "DETHPC_", "_DET_"),  # dethpc's own: addresses, passwords, tokens, and what a trial is told
    ("SLURM_", "SLURMD_", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SINFO_", "SCANCEL_", "SACCT_"),
    ("PMI", "OMPI_", "PRTE_", "I_MPI_HYDRA_"),  # another MPI program's start
    ("SSH_", "DBUS_", "GPG_", "SUDO_", "TMUX", "VSCODE_", "TERM_PROGRAM", "XDG_SESSION_", "XDG_SEAT"),
)
_PREFIXES = tuple(prefix for group in _OTHERS for prefix in group)
_NAMES = frozenset(
    # the session: its screen, its keys, its services
    "DISPLAY WAYLAND_DISPLAY XAUTHORITY ICEAUTHORITY SESSION_MANAGER XDG_RUNTIME_DIR XDG_VTNR KRB5CCNAME STY WINDOW WINDOWID "
    "TERM_SESSION_ID GIT_ASKPASS PGPASSWORD INVOCATION_ID JOURNAL_STREAM NOTIFY_SOCKET LISTEN_FDS LISTEN_PID MAINPID "
    # the shell and the machine it is on
    "_ BASHOPTS BASH_VERSINFO COLUMNS EUID HOST HOSTNAME IFS LINES OLDPWD POSIXLY_CORRECT PPID PROMPT_COMMAND PS1 PS2 PWD "
    "SHELLOPTS SHLVL UID __PYVENV_LAUNCHER__ "
    # which devices a job may use says the scheduler
    "CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES GPU_DEVICE_ORDINAL "
    "ZE_AFFINITY_MASK".split()
)
# Of names that are no variable's to bash it keeps functions alone.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z|BASH_FUNC_[A-Za-z_][A-Za-z0-9_.:+-]*(?:%%|\(\))\Z")
_HARNESS = re.compile(rb"/harness-[0-9a-f]{16}\.zip(?:/|\Z)")


def goes_along(name: str) -> bool:
    """Whether a shell's variable of this name goes with an experiment."""
    return name not in _NAMES and not name.startswith(_PREFIXES) and _NAME.match(name) is not None


@dataclass(frozen=True)
class Environment:
    """``variables`` are those that jobs get. ``python``: the ``python3`` that is first on their PATH, "" when there is none;
    ``packages``: frameworks and servers of pages installed there, name -> version. ``source``: whose it is, "shell" or "master".
    ``sbatch``: variables by which the shell gives options to sbatch, such as SBATCH_ACCOUNT; jobs do not get them."""

    variables: Mapping[str, bytes]
    python: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    source: str = "shell"
    sbatch: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, environ: Mapping[bytes, bytes], **about: object) -> Environment:
        """What goes along of ``environ``, which is as ``os.environb``."""
        named = {name.decode("latin-1"): value for name, value in environ.items()}
        sbatch = {name: value.decode("utf-8", "replace") for name, value in named.items() if name.startswith("SBATCH_")}
        return cls(_job_environment(named), sbatch=sbatch, **about)  # type: ignore[arg-type]

    @classmethod
    def from_bytes(cls, data: bytes) -> Environment:
        """What ``to_bytes`` gave. Whoever sent it: only what goes along is taken. Raises: ValueError."""
        if len(data) > MOST_BYTES:
            raise ValueError(f"it has {len(data):,} bytes; at most {MOST_BYTES:,} are allowed")
        first, behind, variables_as_sent = data.partition(b"\0")
        *entries, rest = variables_as_sent.split(b"\0")
        try:
            about = json.loads(first)
        except (ValueError, RecursionError):
            raise ValueError("it does not begin with a JSON object") from None
        if not isinstance(about, dict) or rest or not behind:
            raise ValueError("it does not begin with a JSON object, or does not end with NUL")
        if about.get("sha256", digest := hashlib.sha256(variables_as_sent).hexdigest()) != digest:
            raise ValueError("checksum mismatch")
        variables = {}
        for entry in entries:
            name, equals, value = entry.partition(b"=")
            if not equals or len(entry) >= _ONE_ENTRY:
                raise ValueError(f"entry {name[:40]!r} is not NAME=VALUE of less than {_ONE_ENTRY:,} bytes")
            variables[name.decode("latin-1")] = value
        packages, sbatch = about.get("packages"), about.get("sbatch")
        return cls(
            _job_environment(variables),
            python=_short(about.get("python")),
            packages={_short(k): _short(v) for k, v in packages.items()} if isinstance(packages, dict) else {},
            source="master" if about.get("source") == "master" else "shell",
            sbatch={_short(k): _short(v) for k, v in sbatch.items() if k.startswith("SBATCH_")}
            if isinstance(sbatch, dict)
            else {},
        )

    def to_bytes(self) -> bytes:
        """Raises: ValueError, which names the largest variables, when it is too large to go with an experiment."""
        data = b"".join(name.encode("latin-1") + b"=" + value + b"\0" for name, value in self.variables.items())
        about: Dict[str, object] = {
            "python": self.python,
            "packages": dict(self.packages),
            "source": self.source,
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        if self.sbatch:
            about["sbatch"] = dict(self.sbatch)
        data = json.dumps(about).encode() + b"\0" + data
        if len(data) > MOST_BYTES:
            largest = sorted(self.variables, key=lambda name: -len(self.variables[name]))[:3]
            raise ValueError(
                f"the environment of this shell has {len(data):,} bytes, and at most {MOST_BYTES:,} go with an experiment. The "
                f"largest variables are {', '.join(largest)}: leave out what its jobs do not need, with env -u {largest[0]} "
                "before the command"
            )
        return data


def _job_environment(variables: Dict[str, bytes]) -> Dict[str, bytes]:
    environment = {name: value for name, value in variables.items() if goes_along(name)}
    if _HARNESS.search(
        environment.get("PYTHONPATH", b"")
    ):  # created from within a job, which has dethpc's own code first there
        paths = [path for path in environment.pop("PYTHONPATH").split(b":") if not _HARNESS.search(path)]
        environment.update({"PYTHONPATH": b":".join(paths)} if paths else {})
    return environment


def _short(value: object) -> str:
    """A text for a screen, whoever sent it."""
    return "".join(c for c in value[:1024] if c.isprintable()) if isinstance(value, str) else ""
