"""Small sections about training itself: ``optimizations``, ``profiling``, ``reproducibility``, ``data_layer``."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Optional, Union

from pydantic import BeforeValidator, Field, model_validator

from dethpc.config.sections.checkpoint_storage import AbsolutePath, Endpoint, Prefix
from dethpc.config.sections.section import Section, Whole, wrong

AtLeastZero = Annotated[Whole, Field(ge=0)]
Precision = Literal["O0", "O1", "O2", "O3"]


class Optimizations(Section):
    aggregation_frequency: Annotated[Whole, Field(ge=1)] = 1
    average_aggregated_gradients: bool = True
    average_training_metrics: bool = True
    gradient_compression: bool = False
    grad_updates_size_file: Optional[str] = None
    mixed_precision: Precision = "O0"
    tensor_fusion_threshold: AtLeastZero = 64  # MiB
    tensor_fusion_cycle_time: AtLeastZero = 1  # milliseconds
    auto_tune_tensor_fusion: bool = False


class Profiling(Section):
    enabled: bool = False
    begin_on_batch: AtLeastZero = 0
    end_after_batch: Optional[AtLeastZero] = None
    sync_timings: bool = True

    @model_validator(mode="after")
    def _in_order(self) -> Profiling:
        if self.end_after_batch is not None and self.end_after_batch < self.begin_on_batch:
            raise wrong(
                f"at least begin_on_batch ({self.begin_on_batch})",
                field="end_after_batch",
                value=str(self.end_after_batch),
            )
        return self


class Reproducibility(Section):
    """Without a seed, the master draws one and writes it here."""

    experiment_seed: Optional[Annotated[Whole, Field(ge=0, le=2**31 - 1)]] = None


class _Cache(Section):
    """``local_cache_size_gib``: how much a node may keep for one user; None: half of what its disk would have free without it."""

    local_cache_size_gib: Optional[Annotated[Whole, Field(ge=1)]] = None


class SharedFSCache(_Cache):
    """``host_storage_path``: where each node keeps datasets; None: in its temporary folder."""

    type: Literal["shared_fs"] = "shared_fs"
    host_storage_path: Optional[AbsolutePath] = None
    container_storage_path: Optional[AbsolutePath] = None


class _Bucket(_Cache):
    """The bucket keeps a copy of what is on the nodes, in ``local_cache_host_path``; None: in their temporary folders."""

    bucket: str = Field(min_length=1)
    bucket_directory_path: Prefix
    local_cache_host_path: Optional[AbsolutePath] = None
    local_cache_container_path: Optional[AbsolutePath] = None


class S3Cache(_Bucket):
    type: Literal["s3"]
    access_key: Optional[str] = None
    secret_key: Optional[str] = None
    endpoint_url: Optional[Endpoint] = None


class GCSCache(_Bucket):
    type: Literal["gcs"]


def _shared_fs(value: Any) -> Any:
    return {"type": "shared_fs", **value} if isinstance(value, dict) else value


DataLayer = Annotated[Union[SharedFSCache, S3Cache, GCSCache], Field(discriminator="type"), BeforeValidator(_shared_fs)]
