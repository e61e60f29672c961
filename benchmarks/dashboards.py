"""Optuna's dashboard before the trials that ``pages.py`` shows, in a Python of its own that has it."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.metrics_in import free_port, has, wait_for

INSTALL = "optuna-dashboard not compared: --peers PYTHON names a Python after `pip install optuna optuna-dashboard`"
READY = ".js-plotly-plot .main-svg"  # the first of its plots of hyperparameters; those that follow take longer

STUDY = """
import json, sys, optuna
from optuna.distributions import FloatDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(storage=JournalStorage(JournalFileBackend(sys.argv[1])), study_name="search")
study.add_trials([
    optuna.trial.create_trial(
        params=dot["hparams"],
        distributions={name: FloatDistribution(0, 1) for name in dot["hparams"]},
        value=dot["metrics"]["loss"],
    )
    for dot in json.load(sys.stdin)
])
"""


@contextmanager
def optuna_dashboard(python: str, dots: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The address of its page of hyperparameters of these trials; "" where ``python`` does not have it."""
    if not python or not has(python, "optuna_dashboard"):
        yield ""
        return
    with tempfile.TemporaryDirectory() as folder:
        kept, port = str(Path(folder, "study.log")), free_port()
        subprocess.run([python, "-c", STUDY, kept], input=json.dumps(list(dots)), text=True, check=True)
        program = str(Path(python).with_name("optuna-dashboard"))
        words = [program, "--host", "127.0.0.1", "--port", str(port), kept]
        server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(port, 120)
            yield f"http://127.0.0.1:{port}/dashboard/studies/0/analytics"
        finally:
            server.terminate()
            server.wait()
