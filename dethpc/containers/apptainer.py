"""Apptainer, and SingularityCE and Singularity before it, whose commands are the same.

Their user guides, "Bind Paths and Mounts" and "GPU Support". A colon or a comma divides the parts of ``--bind``, so that paths go
by ``--mount``, whose value is a line of CSV (RFC 4180).
"""

from __future__ import annotations

from collections.abc import Sequence

from dethpc.containers.base import Bind, Env, Extras, Gpus, Wrapped

_GPUS = {"cuda": ("--nv",), "rocm": ("--rocm",)}


class Apptainer:
    images = frozenset({"folder", "sif", "sqsh"})
    honours = frozenset({"add_capabilities", "drop_capabilities", "shm_size"})

    def __init__(self, name: str = "apptainer") -> None:
        self.name = self.binary = name

    def wrap(
        self,
        image: str,
        command: Sequence[str],
        binds: Sequence[Bind],
        env: Env,
        gpus: Gpus,
        extras: Extras = Extras(),  # noqa: B008
    ) -> Wrapped:
        """The process inside is a child of Apptainer's, which hands signals on and dies with it. /dev/shm and all devices are the
        node's: an ordinary user opens what the job's cgroup allows."""
        argv = [extras.binary or self.binary, "--silent", "exec", "--no-home", "--pwd", extras.workdir]
        argv += _GPUS.get(gpus, ())
        for bind in (*binds, *(Bind(d.source, d.target) for d in extras.devices if d.source != d.target)):
            argv += ["--mount", _mount(bind)]
        if extras.add_capabilities:
            argv += ["--add-caps", ",".join(extras.add_capabilities)]
        if extras.drop_capabilities:
            argv += ["--drop-caps", ",".join(extras.drop_capabilities)]
        return Wrapped((), (*argv, *extras.options, image, *command), dict(env.set), tuple(env.passed))


def _mount(bind: Bind) -> str:
    parts = ["type=bind", f"source={bind.source}", f"destination={bind.target}", *(["ro"] if bind.read_only else [])]
    return ",".join(_field(part) for part in parts)


def _field(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\r\n') or text != text.strip() else text
