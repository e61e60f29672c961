"""What published training code takes from ``determined.util``."""

from __future__ import annotations

import random
import time
from typing import Any, Dict


def merge_dicts(base_dict: Dict[Any, Any], source_dict: Dict[Any, Any]) -> Dict[Any, Any]:
    """A new mapping of both, mappings inside merged likewise; of other values ``source_dict``'s count."""
    merged = dict(base_dict)
    for name, value in source_dict.items():
        below = merged.get(name)
        both = isinstance(value, dict) and isinstance(below, dict)
        merged[name] = merge_dicts(merged[name], value) if both else value
    return merged


def download_gcs_blob_with_backoff(blob: Any, n_retries: int = 32, max_backoff: int = 32) -> Any:
    """The bytes of a blob of Google Cloud Storage, tried again after up to ``max_backoff`` seconds. Raises what the last of
    ``n_retries`` tries raised."""
    for tried in range(1, n_retries + 1):
        try:
            return blob.download_as_string()
        except Exception:
            if tried == n_retries:
                raise
            time.sleep(min(2**tried + random.random(), max_backoff))
    raise ValueError(f"n_retries is at least 1, not {n_retries}")
