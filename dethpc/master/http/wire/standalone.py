"""Runs that are submitted by hand."""

from __future__ import annotations

from dethpc.master.http.models import Wire
from dethpc.master.http.wire.experiment import Experiment, File


class RenderRequest(Wire):
    config: str = ""
    model_definition: list[File] | None = None


class Rendered(Wire):
    script: str
    run: str
    run_directory: str
    notes: list[str] = []


class ImportRequest(Wire):
    run_directory: str


class Imported(Wire):
    experiment: Experiment
