"""What is left of DeepSpeed Autotune, which Determined gave up: how its experiments read their configuration."""

from __future__ import annotations

from dethpc.pytorch.deepspeed import get_ds_config_from_hparams

__all__ = ["get_ds_config_from_hparams"]
