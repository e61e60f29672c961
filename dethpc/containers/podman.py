"""Podman without root, on a folder (``--rootfs``). Its manual, podman-run(1); CDI for devices of NVIDIA."""

from __future__ import annotations

from collections.abc import Sequence

from dethpc.containers.base import TMP, Bind, Env, Extras, Gpus, Wrapped

_GPUS = {
    "cuda": ("--device", "nvidia.com/gpu=all"),
    "rocm": ("--device", "/dev/kfd", "--device", "/dev/dri", "--group-add", "keep-groups"),
}


class Podman:
    name = binary = "podman"
    images = frozenset({"folder"})
    honours = frozenset({"add_capabilities", "drop_capabilities", "propagation", "shm_size", "device_mode"})

    def wrap(
        self,
        image: str,
        command: Sequence[str],
        binds: Sequence[Bind],
        env: Env,
        gpus: Gpus,
        extras: Extras = Extras(),  # noqa: B008
    ) -> Wrapped:
        """Signals are handed on by ``podman run``, and the container goes with it."""
        argv = [extras.binary or self.binary, "run", "--rm", "--network=host", "--userns=keep-id", "--ulimit=host"]
        argv += ["--cgroups=disabled", "--security-opt=label=disable", "--tz=local", f"--workdir={extras.workdir}"]
        argv += [f"--shm-size={_bytes(extras.shm_size)}"] if extras.shm_size else []
        argv += _GPUS.get(gpus, ())
        for pattern in env.passed:
            argv += ["--env", pattern]
        for name, value in env.set.items():
            argv += ["--env", f"{name}={value}"]
        shm = [] if extras.shm_size else [Bind("/dev/shm", "/dev/shm")]
        for bind in (Bind(TMP, TMP), *shm, *binds):
            argv += ["--mount", _mount(bind)]
        for device in extras.devices:
            argv += ["--device", f"{device.source}:{device.target}:{device.mode}"]
        argv += [f"--cap-add={name}" for name in extras.add_capabilities]
        argv += [f"--cap-drop={name}" for name in extras.drop_capabilities]
        return Wrapped((), (*argv, *extras.options, "--entrypoint=", "--rootfs", f"{image}:O", *command))


_UNITS = "kmgtp"


def _bytes(size: str) -> int:
    """As Determined reads them: 4GiB and 4g are 2**30 each, 4GB is 10**9."""
    number = size.rstrip("kmgtpibKMGTPIB ")
    unit = size[len(number) :].strip().lower()
    if not unit or unit == "b":
        return int(float(number))
    return int(
        float(number) * (1000 if unit.endswith("b") and "i" not in unit else 1024) ** (_UNITS.index(unit[0]) + 1)
    )


def _mount(bind: Bind) -> str:
    parts = ["type=bind", f"source={bind.source}", f"destination={bind.target}", f"bind-propagation={bind.propagation}"]
    parts += ["ro=true"] if bind.read_only else []
    return ",".join('"' + part.replace('"', '""') + '"' if any(c in part for c in ',"\r\n') else part for part in parts)
