"""System metrics during training: a later release brings them."""

from __future__ import annotations

import logging

logger = logging.getLogger("dethpc.core")


class ProfilerContext:
    """Switching it on is accepted, says that it has no effect yet, and lets the training go on."""

    def on(self, sampling_interval: int = 1, samples_per_report: int = 10) -> None:
        """``sampling_interval`` in seconds. Not supported yet: nothing is sampled."""
        if sampling_interval < 0.1:
            raise ValueError(f"sampling_interval is at least 0.1 s, not {sampling_interval}")
        if not isinstance(samples_per_report, int) or samples_per_report < 1:
            raise ValueError(f"samples_per_report is a whole number from 1, not {samples_per_report}")
        logger.warning("core_context.profiler.on() is not supported yet: no system metrics are reported")

    def off(self) -> None:
        """Does nothing when it is off."""

    def _close(self) -> None:
        self.off()


class DummyProfilerContext(ProfilerContext):
    """Off the cluster nothing is sampled."""

    def on(self, sampling_interval: int = 1, samples_per_report: int = 10) -> None:
        pass
