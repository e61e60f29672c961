"""NVIDIA's enroot: ``enroot start`` on a .sqsh file. Its usage pages, "start" and "Image format"; mounts are lines of fstab."""

from __future__ import annotations

from collections.abc import Sequence

from dethpc.containers.base import TMP, Bind, Env, Extras, Gpus, Wrapped

# enroot takes names of variables one by one. $1: patterns of those that go along, divided by "|"; then the words of enroot.
_NAMES = r"""
patterns=$1 names=()
shift
shopt -s extglob
for name in $(compgen -e); do
    case $name in @($patterns)) names+=(--env "$name") ;; esac
done
exec "$1" start "${names[@]}" "${@:2}"
"""


class Enroot:
    name = binary = "enroot"
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
        """enroot ends in the command's place. Its hook for NVIDIA reads ``NVIDIA_VISIBLE_DEVICES``."""
        given = variables(env, gpus)
        argv = ["/bin/bash", "-c", _NAMES.strip(), "dethpc-enroot", "|".join([*env.passed, *given])]
        argv += [extras.binary or self.binary, "--rw"]
        for bind in (Bind(TMP, TMP), *binds, *devices(gpus, extras)):
            argv += ["--mount", _line(bind)]
        return Wrapped((), (*argv, *extras.options, image, *command), given, tuple(env.passed))


def variables(env: Env, gpus: Gpus) -> dict[str, str]:
    """Those of the container, with what enroot's hook for NVIDIA reads. pyxis starts containers by enroot."""
    return {**env.set, "NVIDIA_VISIBLE_DEVICES": "all" if gpus == "cuda" else "void"}


def devices(gpus: Gpus, extras: Extras) -> list[Bind]:
    """Devices that are bound as files are: those of AMD, and those that the experiment asks for."""
    own = [Bind("/dev/kfd", "/dev/kfd"), Bind("/dev/dri", "/dev/dri")] if gpus == "rocm" else []
    return [*own, *(Bind(device.source, device.target) for device in extras.devices)]


def _line(bind: Bind) -> str:
    options = f"x-create=auto,rbind,{'ro' if bind.read_only else 'rw'},{bind.propagation}"
    return f"{_escaped(bind.source)} {_escaped(bind.target)} none {options}"


def _escaped(path: str) -> str:
    """As fstab(5) has it."""
    return "".join(f"\\{ord(c):03o}" if c in " \t\n\\#" else c for c in path)
