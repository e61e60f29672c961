"""Whatever text an experiment brings, every runtime is told it unharmed. A stand-in on PATH records what it is started with."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dethpc.containers import RUNTIMES, Bind, Device, Env, Extras, Gpus, that_honour
from dethpc.containers.base import PASSED
from dethpc.scheduler.slurm.script import ScriptInput, render

STAND_IN = """#!/bin/bash
printf '%s\\0' "$0" "$@" >"$RECORDED/argv"
env -0 >"$RECORDED/environ"
"""
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
IN_CONTAINERS = [name for name in RUNTIMES if name != "none"]


@dataclass
class Started:
    argv: list[str]
    environ: dict[str, str]


def start(
    name: str,
    command: Sequence[str],
    binds: Sequence[Bind] = (),
    env: Env = Env(),  # noqa: B008
    gpus: Gpus = "",
    extras: Extras = Extras(),  # noqa: B008
    image: str = "/images/x",
    **outside: str,
) -> Started:
    """What the runtime's program, or unshare before it, or srun, is started with by a batch script."""
    wrapped = RUNTIMES[name].wrap(image, command, binds, env, gpus, extras)
    with tempfile.TemporaryDirectory() as folder:
        programs = Path(folder, "bin")
        programs.mkdir()
        for program in ("apptainer", "singularity", "unshare", "podman", "enroot", "srun"):
            (programs / program).write_text(STAND_IN)
            (programs / program).chmod(0o755)
        script = render(
            ScriptInput(
                job_name="x", run_dir=Path(folder), harness="/h", use_srun=name == "pyxis",
                wrapped=wrapped,
            )
        )  # fmt: skip
        begin = "# User code is to see" if name == "pyxis" else "# In a container"
        part = script[script.index(begin) : script.index("child=$!")]
        own = {"PATH": f"{programs}:{os.environ['PATH']}", "SLURM_JOB_NUM_NODES": "1", "SLURM_TASKS_PER_NODE": "1"}
        inner = {**own, "LC_ALL": "C.UTF-8", "USER": "me", **outside}
        passed = part.replace("case $name in PATH", "case $name in PATH | RECORDED | LC_ALL")
        subprocess.run(["/bin/bash", "-c", passed + "wait"], env={**inner, "RECORDED": folder}, check=True)
        argv = Path(folder, "argv").read_bytes().decode().split("\0")[:-1]
        entries = Path(folder, "environ").read_bytes().decode().split("\0")[:-1]
    return Started(argv, dict(entry.split("=", 1) for entry in entries))


@pytest.mark.parametrize("name", IN_CONTAINERS)
@given(words=st.lists(TEXT, max_size=3), value=TEXT, path=TEXT, outside=TEXT)
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_text_survives(name: str, words: list[str], value: str, path: str, outside: str) -> None:
    """In words of the command, values of variables, and both sides of a bind."""
    if name == "pyxis":
        path = path.replace(":", "").replace(",", "")
    if name in ("podman", "apptainer", "singularity"):
        path = path.replace("\r", "")  # Python's reader of CSV ends a record there, Go's does not
    bind = Bind(f"/data/{path}", f"/in/{path}", read_only=True)
    command = ["python3", *words, "end"]
    started = start(name, command, [bind], Env({"GIVEN": value}), DET_OUTSIDE=outside, DROPPED="x")
    assert started.argv[-len(command) :] == command
    if name == "podman":
        assert f"GIVEN={value}" in started.argv
    else:
        assert started.environ["GIVEN"] == value
    assert started.environ["DET_OUTSIDE"] == outside and ("DROPPED" in started.environ) == (name == "podman")
    assert mounts(name, started.argv)[-1] == (bind.source, bind.target, True)


def mounts(name: str, argv: Sequence[str]) -> list[tuple[str, str, bool]]:
    """(source, target, read-only) as the runtime would read them."""
    if name == "charliecloud":
        count = int(argv[argv.index("/images/x") + 3])
        words = argv[argv.index("/images/x") + 4 :]
        return [(words[3 * i], words[3 * i + 1], words[3 * i + 2] == "ro") for i in range(count)]
    if name == "pyxis":
        (listed,) = [word.partition("=")[2] for word in argv if word.startswith("--container-mounts=")]
        parts = [each.split(":") for each in listed.split(",")]
        return [(source, target, flags.startswith("ro")) for source, target, flags in parts]
    values = [argv[i + 1] for i, word in enumerate(argv) if word == "--mount"]
    if name == "enroot":
        fields = [[re.sub(r"\\(\d{3})", lambda m: chr(int(m[1], 8)), part) for part in v.split(" ")] for v in values]
        return [(each[0], each[1], "ro" in each[3].split(",")) for each in fields]
    found = []
    for value in values:
        (record,) = csv.reader([value], strict=True) if "\n" not in value else csv.reader(value.splitlines(True))
        options = dict(part.partition("=")[::2] for part in record)
        found.append((options["source"], options["destination"], "ro" in options))
    return found


@pytest.mark.parametrize("name", IN_CONTAINERS)
def test_what_describes_the_node_stays_outside_and_what_describes_the_job_goes_along(name: str) -> None:
    variables = {
        "SLURM_JOB_ID": "3",
        "CUDA_VISIBLE_DEVICES": "2,3",
        "https_proxy": "http://p",
        "LD_LIBRARY_PATH": "/opt/lib",
        "PYTHONPATH": "/opt/python",
        "CONDA_PREFIX": "/opt/conda",
        "BASH_FUNC_module%%": "() { :; }",
        "NCCL_DEBUG": "INFO",
    }
    started = start(name, ["true"], env=Env({}, (*PASSED, "NCCL_*")), **variables)
    kept = {key: value for key, value in started.environ.items() if key in variables}
    if name == "podman":  # which hands on what it is told to, and nothing else
        patterns = [started.argv[i + 1] for i, word in enumerate(started.argv) if word == "--env"]
        kept = {key: value for key, value in kept.items() if any(fnmatch(key, pattern) for pattern in patterns)}
    assert kept == {
        key: variables[key] for key in ("SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES", "https_proxy", "NCCL_DEBUG")
    }
    if name == "enroot":  # which takes names one by one
        names = [started.argv[i + 1] for i, word in enumerate(started.argv) if word == "--env"]
        assert set(kept) <= set(names) and "PATH" not in names


@pytest.mark.parametrize(
    ("name", "gpus", "words"),
    [
        ("apptainer", "cuda", ["--nv"]),
        ("singularity", "rocm", ["--rocm"]),
        ("podman", "cuda", ["--device", "nvidia.com/gpu=all"]),
        ("podman", "rocm", ["--device", "/dev/kfd"]),
    ],
)
def test_gpus_come_in_by_the_runtimes_own_way(name: str, gpus: Gpus, words: list[str]) -> None:
    argv = start(name, ["true"], gpus=gpus).argv
    assert argv[argv.index(words[0]) :][: len(words)] == words
    assert words[-1] not in start(name, ["true"]).argv


@pytest.mark.parametrize("name", ["enroot", "pyxis"])
def test_gpus_come_in_by_nvidias_hook(name: str) -> None:
    assert start(name, ["true"], gpus="cuda").environ["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert start(name, ["true"]).environ["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert ("/dev/kfd", "/dev/kfd", False) in mounts(name, start(name, ["true"], gpus="rocm").argv)


@pytest.mark.parametrize("name", IN_CONTAINERS)
def test_the_sites_options_and_program_are_used(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder, "own")
        own.write_text(STAND_IN)
        own.chmod(0o755)
        argv = start(name, ["true"], extras=Extras(binary=str(own), options=["--of the site"])).argv
    assert "--of the site" in argv
    assert name == "pyxis" or str(own) in argv


@pytest.mark.parametrize("name", IN_CONTAINERS)
def test_a_device_is_seen_at_its_other_path(name: str) -> None:
    argv = start(name, ["true"], extras=Extras(devices=[Device("/dev/a", "/dev/b", "rw")])).argv
    if name == "podman":
        assert argv[argv.index("/dev/a:/dev/b:rw") - 1] == "--device"
    else:
        assert ("/dev/a", "/dev/b", False) in mounts(name, argv)


def test_capabilities_and_shared_memory_are_podmans() -> None:
    extras = Extras(add_capabilities=["IPC_LOCK"], drop_capabilities=["NET_RAW"], shm_size="4 GiB")
    argv = start("podman", ["true"], extras=extras).argv
    assert {"--cap-add=IPC_LOCK", "--cap-drop=NET_RAW", f"--shm-size={4 << 30}"} <= set(argv)
    argv = start("apptainer", ["true"], extras=extras).argv
    assert argv[argv.index("--add-caps") + 1] == "IPC_LOCK" and argv[argv.index("--drop-caps") + 1] == "NET_RAW"
    assert that_honour("add_capabilities") == ["apptainer", "singularity", "podman"]


@pytest.mark.parametrize(
    ("size", "count"),
    [("4096", 4096), ("4g", 4 << 30), ("1.5 GiB", 3 << 29), ("2GB", 2 * 10**9), ("100 kb", 10**5), ("7b", 7)],
)
def test_sizes_are_read_as_determined_does(size: str, count: int) -> None:
    assert f"--shm-size={count}" in start("podman", ["true"], extras=Extras(shm_size=size)).argv


def test_pyxis_refuses_a_path_that_it_would_take_apart() -> None:
    with pytest.raises(ValueError, match="colons and commas"):
        RUNTIMES["pyxis"].wrap("/i.sqsh", ["true"], [Bind("/a:b", "/c")], Env(), "", Extras())


def test_pyxis_gets_the_image_by_srun() -> None:
    argv = start("pyxis", ["python3"], image="/images/a.sqsh").argv
    assert "--container-image=/images/a.sqsh" in argv and "--ntasks-per-node=1" in argv
