"""pyxis, NVIDIA's plugin of Slurm: srun starts the container, by enroot. Its README, "Usage"."""

from __future__ import annotations

from collections.abc import Sequence

from dethpc.containers.base import TMP, Bind, Env, Extras, Gpus, Wrapped
from dethpc.containers.enroot import devices, variables


class Pyxis:
    name = "pyxis"
    binary = "srun"
    images = frozenset({"sqsh"})
    honours = frozenset({"propagation", "shm_size"})

    def wrap(
        self,
        image: str,
        command: Sequence[str],
        binds: Sequence[Bind],
        env: Env,
        gpus: Gpus,
        extras: Extras = Extras(),  # noqa: B008
    ) -> Wrapped:
        """The variables of the task go along where the image has no others; those of ``env.set`` go above the image's.

        Raises ValueError for a path that pyxis cannot be told: one with a colon or a comma.
        """
        given, mounts = variables(env, gpus), (Bind(TMP, TMP), *binds, *devices(gpus, extras))
        options = [f"--container-image={image}", f"--container-workdir={extras.workdir}", "--container-writable"]
        options += ["--no-container-mount-home", "--no-container-entrypoint", f"--container-env={','.join(given)}"]
        options.append("--container-mounts=" + ",".join(_mount(bind) for bind in mounts))
        return Wrapped((*options, *extras.options), tuple(command), given, tuple(env.passed))


def _mount(bind: Bind) -> str:
    for path in (bind.source, bind.target):
        if ":" in path or "," in path:
            raise ValueError(f"{path!r} cannot be bound by pyxis, which divides its mounts by colons and commas")
    return f"{bind.source}:{bind.target}:{'ro' if bind.read_only else 'rw'}+rbind+{bind.propagation}"
