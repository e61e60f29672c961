"""Checks are made when a section is first checked, by whichever thread that is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dethpc.config.sections.section import DEFER_BUILD

BY_MANY = """
    import threading
    from concurrent.futures import ThreadPoolExecutor
    from dethpc.config.experiment import ExperimentConfig
    from dethpc.config.site import SiteConfig

    assert not ExperimentConfig.__pydantic_complete__ and not SiteConfig.__pydantic_complete__
    stored = {"entrypoint": "train", "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 3}}}
    together = threading.Barrier(8)

    def check(number):
        together.wait()
        site = SiteConfig.model_validate({"cluster_name": str(number)})
        return site.cluster_name, ExperimentConfig.from_json(stored).searcher.name

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(check, range(8))) == [(str(number), "single") for number in range(8)]
    assert ExperimentConfig.__pydantic_complete__ and SiteConfig.__pydantic_complete__
"""


@pytest.mark.skipif(not DEFER_BUILD, reason="this release of pydantic makes them at once")
@pytest.mark.slow
def test_the_checks_of_a_section_are_made_once_when_many_threads_first_need_them() -> None:
    code = "\n".join(line.removeprefix("    ") for line in BY_MANY.splitlines())
    subprocess.run([sys.executable, "-c", code], check=True)
