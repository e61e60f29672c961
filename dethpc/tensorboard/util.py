"""Recognizes TensorBoard's files, and names them where several workers write."""

from __future__ import annotations

import pathlib
import re
from typing import List, Optional

tb_file_types = ["*tfevents*", "*.trace.json.gz", "*.trace.json", "*.memory_profile.json.gz", "*.pb"]

# Of TensorFlow's profiler, which names files by the host.
profiler_file_extensions = [
    ".input_pipeline.pb",
    ".memory_profile.json.gz",
    ".tensorflow_stats.pb",
    ".xplane.pb",
    ".kernel_stats.pb",
    ".overview_page.pb",
    ".trace.json.gz",
    ".trace.json",
]
pytorch_profiler_file_extensions = [".pt.trace.json", ".pt.trace.json.gz"]
# The worker's name, and when the trace began.
pytorch_profiler_file_pattern = re.compile(r"(.*?)(\.\d+)?\.pt\.trace\.json(?:\.gz)?")


def find_tb_files(base_dir: pathlib.Path) -> List[pathlib.Path]:
    """TensorBoard's files below ``base_dir``."""
    return [file for pattern in tb_file_types for file in base_dir.rglob(pattern)]


def get_pytorch_profiler_file_extension(path: pathlib.Path) -> Optional[str]:
    return next((ending for ending in pytorch_profiler_file_extensions if path.name.endswith(ending)), None)


def get_rank_aware_path(path: pathlib.Path, rank: int) -> pathlib.Path:
    """The path of a profiler's file with ``#rank`` after the worker's name: ``host.xplane.pb`` becomes ``host#3.xplane.pb``.
    Any other file keeps its own."""
    ending = get_pytorch_profiler_file_extension(path)
    if ending is not None:
        match = pytorch_profiler_file_pattern.fullmatch(path.name)
        assert match is not None
        return path.with_name(f"{match[1]}#{rank}{match[2] or ''}{ending}")
    for ending in profiler_file_extensions:
        if path.name.endswith(ending):
            return path.with_name(f"{path.name[: -len(ending)]}#{rank}{ending}")
    return path
