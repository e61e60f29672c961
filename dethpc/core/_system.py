"""Samples of a machine's load for the profiler, from ``/proc`` and NVIDIA's tools, in Determined's groups and names.

Rates are relative to the previous sample, so the first sample of a group that has rates is empty.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

Sample = Dict[str, Any]
"""Name -> number, or label (a path, a GPU's UUID) -> name -> number."""


class CPU:
    """``cpu_util_simple``: percent of all cores together."""

    group = "cpu"

    def __init__(self) -> None:
        self._before = self._times()

    def sample(self) -> Sample:
        busy, total = self._times()
        before, self._before = self._before, (busy, total)
        if total <= before[1]:
            return {}
        return {"cpu_util_simple": 100.0 * (busy - before[0]) / (total - before[1])}

    def _times(self) -> Tuple[int, int]:
        with open("/proc/stat") as file:
            times = [int(word) for word in file.readline().split()[1:9]]
        idle = times[3] + times[4]
        return sum(times) - idle, sum(times)


class Memory:
    """``memory_free``: bytes that programs can still get."""

    group = "memory"

    def sample(self) -> Sample:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return {"memory_free": int(line.split()[1]) * 1024}
        return {}


class _Rates:
    """Counters that only grow, as rates per second."""

    def __init__(self, names: Tuple[str, ...], read: Callable[[], Tuple[int, ...]]) -> None:
        self._names, self._read = names, read
        self._at, self._before = time.monotonic(), read()

    def sample(self) -> Sample:
        at, counters = time.monotonic(), self._read()
        seconds, before = at - self._at, self._before
        self._at, self._before = at, counters
        if seconds <= 0:
            return {}
        return {name: max(0, new - old) / seconds for name, new, old in zip(self._names, counters, before)}


class Disk:
    """``disk_iops``, ``disk_throughput_read`` and ``_write`` (bytes per second) of all disks, ``disk_util`` (percent) of ``/``."""

    group = "disk"

    def __init__(self) -> None:
        self._rates = _Rates(("disk_iops", "disk_throughput_read", "disk_throughput_write"), _disks)

    def sample(self) -> Sample:
        usage = shutil.disk_usage("/")
        return {**self._rates.sample(), "/": {"disk_util": 100.0 * usage.used / usage.total}}


class Network:
    """``net_throughput_sent`` and ``_recv``: bytes per second over all interfaces."""

    group = "network"

    def __init__(self) -> None:
        self._rates = _Rates(("net_throughput_sent", "net_throughput_recv"), _interfaces)

    def sample(self) -> Sample:
        return self._rates.sample()


class GPU:
    """``gpu_util`` (percent) and ``gpu_free_memory`` (bytes) by UUID; nothing on machines without NVIDIA's library and tools."""

    group = "gpu"

    def __init__(self) -> None:
        self._read: Optional[Callable[[], Sample]] = _nvml()
        if self._read is None and shutil.which("nvidia-smi"):
            self._read = _nvidia_smi

    def sample(self) -> Sample:
        return self._read() if self._read is not None else {}


def samplers() -> List[Any]:
    """One of each group that can be read on this machine; each has ``group`` and ``sample()``."""
    readable: List[Any] = []
    for kind in (CPU, Memory, Disk, Network, GPU):
        try:
            readable.append(kind())
        except (OSError, ValueError, IndexError):
            continue
    return readable


def _disks() -> Tuple[int, ...]:
    """Operations, bytes read, bytes written; whole disks alone, so that partitions do not count twice."""
    operations = read = written = 0
    with open("/proc/diskstats") as file:
        for line in file:
            fields = line.split()
            if len(fields) >= 10 and os.path.isdir(f"/sys/block/{fields[2].replace('/', '!')}"):
                operations += int(fields[3]) + int(fields[7])
                read += int(fields[5]) * 512
                written += int(fields[9]) * 512
    return operations, read, written


def _interfaces() -> Tuple[int, ...]:
    sent = received = 0
    with open("/proc/net/dev") as file:
        for line in file:
            _, colon, counters = line.partition(":")
            if colon:
                fields = counters.split()
                received += int(fields[0])
                sent += int(fields[8])
    return sent, received


def _nvml() -> Optional[Callable[[], Sample]]:
    try:
        pynvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]
        named = {_text(pynvml.nvmlDeviceGetUUID(handle)): handle for handle in handles}
    except pynvml.NVMLError:
        return None

    def sample() -> Sample:
        try:
            return {
                uuid: {
                    "gpu_util": pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
                    "gpu_free_memory": pynvml.nvmlDeviceGetMemoryInfo(handle).free,
                }
                for uuid, handle in named.items()
            }
        except pynvml.NVMLError:
            return {}

    return sample


def _text(uuid: Any) -> str:
    return uuid.decode() if isinstance(uuid, bytes) else str(uuid)  # older releases give bytes


def _nvidia_smi() -> Sample:
    command = ["nvidia-smi", "--query-gpu=uuid,utilization.gpu,memory.free", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        return {
            uuid: {"gpu_util": float(util), "gpu_free_memory": int(float(free)) << 20}
            for uuid, util, free in (line.split(", ") for line in done.stdout.splitlines())
        }
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}
