"""Names of ``determined`` that trial classes take in annotations, and the configuration as they read it."""

from __future__ import annotations

from typing import Any, Dict, Optional

from dethpc.domain.trial_config import SearcherConfig


class TrialContext:
    """What the constructor of a trial class is given: a :class:`PyTorchTrialContext` or a :class:`DeepSpeedTrialContext`."""


class ExperimentConfig(Dict[str, Any]):
    """An experiment's effective configuration, with Determined's ways to read it."""

    def _section(self, name: str) -> Dict[str, Any]:
        return self.get(name) or {}

    def debug_enabled(self) -> bool:
        return bool(self.get("debug", False))

    def scheduling_unit(self) -> int:
        return int(self.get("scheduling_unit") or 100)

    def slots_per_trial(self) -> int:
        return int(self._section("resources").get("slots_per_trial", 1))

    def native_parallel_enabled(self) -> bool:
        return bool(self._section("resources").get("native_parallel", False))

    def average_training_metrics_enabled(self) -> bool:
        return bool(self.get_optimizations_config().get("average_training_metrics", True))

    def experiment_seed(self) -> int:
        return int(self._section("reproducibility").get("experiment_seed", 0))

    def profiling_enabled(self) -> bool:
        return bool(self._section("profiling").get("enabled", False))

    def profiling_interval(self) -> tuple[int, Optional[int]]:
        """The batches that are profiled: from the first number up to the second; None: to the end."""
        profiling = self._section("profiling")
        return int(profiling.get("begin_on_batch") or 0), profiling.get("end_after_batch")

    def profiling_sync_timings(self) -> bool:
        return bool(self._section("profiling").get("sync_timings", True))

    def get_records_per_epoch(self) -> Optional[int]:
        return self.get("records_per_epoch")

    def get_min_validation_period(self) -> Dict[str, Any]:
        return self._section("min_validation_period")

    def get_min_checkpoint_period(self) -> Dict[str, Any]:
        return self._section("min_checkpoint_period")

    def get_searcher_metric(self) -> str:
        return SearcherConfig.of(self).metric

    def get_optimizations_config(self) -> Dict[str, Any]:
        return self._section("optimizations")

    def get_checkpoint_storage(self) -> Dict[str, Any]:
        return self._section("checkpoint_storage")

    def get_entrypoint(self) -> Any:
        return self["entrypoint"]
