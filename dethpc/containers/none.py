"""No container: the usual way on clusters, with modules, conda or a virtual environment."""

from __future__ import annotations

from collections.abc import Sequence

from dethpc.containers.base import Bind, Env, Extras, Gpus, Wrapped


class NoContainer:
    name = "none"
    binary = ""
    images: frozenset[str] = frozenset()
    honours: frozenset[str] = frozenset()

    def wrap(
        self,
        image: str,
        command: Sequence[str],
        binds: Sequence[Bind],
        env: Env,
        gpus: Gpus,
        extras: Extras = Extras(),  # noqa: B008
    ) -> Wrapped:
        """The command as it is, in the environment of the job."""
        return Wrapped((), tuple(command))
