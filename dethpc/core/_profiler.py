"""System metrics during training: a thread that samples the machine and reports averages, off until it is asked for, by the code
or by the configuration."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from dethpc.core._distributed import DistributedContext
from dethpc.errors import RunDirError
from dethpc.rundir.files import read_json, write_json

logger = logging.getLogger("dethpc.core")

Send = Callable[[str, Dict[str, Any]], None]
"""Takes a group and its metrics: node -> name -> number, or node -> label -> name -> number."""


class ProfilerContext:
    """Samples the machine while it is on, one worker of each node alone, and reports the averages as metrics.

    Their groups are "cpu", "memory", "disk", "network" and "gpu", with Determined's names, under the name of the node. Workers on
    other nodes than the chief's leave theirs in ``folder``, which the chief reads; None: there is no other node.
    """

    def __init__(
        self,
        agent_id: str,
        report: Optional[Send],
        distributed: DistributedContext,
        folder: Optional[Path] = None,
        from_start: bool = False,
    ) -> None:
        self._agent_id = agent_id
        self._report = report
        self._distributed = distributed
        self._folder = folder if distributed.cross_size > 1 else None
        self._collector: Optional[_Collector] = None
        self._from_start = from_start  # as the configuration's profiling.enabled has it

    def on(self, sampling_interval: int = 1, samples_per_report: int = 10) -> None:
        """Start sampling every ``sampling_interval`` seconds; after every ``samples_per_report`` samples their average is reported.

        Does nothing when it is on already. Raises ValueError.
        """
        if sampling_interval < 0.1:
            raise ValueError(f"sampling_interval is at least 0.1 s, not {sampling_interval}")
        if isinstance(samples_per_report, bool) or not isinstance(samples_per_report, int) or samples_per_report < 1:
            raise ValueError(f"samples_per_report is a whole number from 1, not {samples_per_report}")
        if self._collector is None and self._distributed.local_rank == 0:
            self._collector = _Collector(self._take, sampling_interval, samples_per_report)
            self._collector.start()

    def off(self) -> None:
        """Stop sampling; what was sampled since the last report is dropped. Does nothing when it is off."""
        if self._collector is not None:
            self._collector.stop()
            self._collector = None

    def _start(self) -> None:
        if self._from_start:
            self.on()

    def _close(self) -> None:
        self.off()

    def _take(self, averages: Dict[str, Dict[str, Any]]) -> None:
        if self._report is None:
            if self._folder is not None:
                write_json(self._folder / f"system-{self._agent_id}.json", {"at": time.time(), "groups": averages})
            return
        nodes = {self._agent_id: averages, **self._of_other_nodes()}
        for group in sorted({group for groups in nodes.values() for group in groups}):
            self._report(group, {node: groups[group] for node, groups in sorted(nodes.items()) if group in groups})

    def _of_other_nodes(self) -> Dict[str, Dict[str, Any]]:
        groups: Dict[str, Dict[str, Any]] = {}
        for path in [] if self._folder is None else self._folder.glob("system-*.json"):
            try:
                report = read_json(path)
            except RunDirError:
                continue
            if report is not None and time.time() - float(report["at"]) < 600:
                groups[path.name[len("system-") : -len(".json")]] = report["groups"]
        return groups


class DummyProfilerContext(ProfilerContext):
    """Outside the cluster nothing is sampled."""

    def __init__(self) -> None:
        self._from_start = False

    def on(self, sampling_interval: int = 1, samples_per_report: int = 10) -> None:
        pass

    def off(self) -> None:
        pass


class _Collector(threading.Thread):
    def __init__(self, take: Callable[[Dict[str, Dict[str, Any]]], None], interval: float, count: int) -> None:
        super().__init__(name="dethpc-profiler", daemon=True)
        self._take, self._interval, self._count = take, interval, count
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()
        self.join(10)

    def run(self) -> None:
        from dethpc.core._system import samplers

        sources = samplers()
        while True:
            samples: Dict[str, List[Dict[str, Any]]] = {}
            for _ in range(self._count):
                if self._stopping.wait(self._interval):
                    return
                for source in sources:
                    try:
                        sample = source.sample()
                    except (OSError, ValueError, IndexError):
                        continue
                    if sample:
                        samples.setdefault(source.group, []).append(sample)
            try:
                self._take({group: average(several) for group, several in samples.items()})
            except (OSError, RuntimeError) as error:
                logger.warning("system metrics could not be reported: %s", error)


def average(samples: List[Dict[str, Any]]) -> Dict[str, Any]:
    """The mean of each number over the samples that have it; labelled numbers by label."""
    out: Dict[str, Any] = {}
    for name in dict.fromkeys(name for sample in samples for name in sample):
        values = [sample[name] for sample in samples if name in sample]
        out[name] = average(values) if isinstance(values[0], dict) else sum(values) / len(values)
    return out
