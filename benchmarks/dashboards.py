"""Optuna's dashboard and MLflow's pages before the trials that ``pages.py`` shows, in a Python of its own that has them."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from benchmarks.metrics_in import free_port, has, mlflow_server, wait_for

INSTALL = "not compared: --peers PYTHON names a Python after `pip install optuna optuna-dashboard mlflow`"
READY = ".js-plotly-plot .main-svg"  # the first plot of either; Optuna's others, which follow, take longer

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

RUNS = """
import json, sys
from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient
client, runs = MlflowClient(sys.argv[1]), []
for dot in json.load(sys.stdin):
    run = client.create_run("0").info.run_id
    params = [Param(name, str(value)) for name, value in dot["hparams"].items()]
    client.log_batch(run, [Metric("loss", dot["metrics"]["loss"], 0, 1)], params)
    client.set_terminated(run)
    runs.append(run)
print(json.dumps(runs))
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


@contextmanager
def mlflow_comparison(python: str, dots: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The address of its page that compares these trials as runs; "" where ``python`` does not have it."""
    if not python or not has(python, "mlflow"):
        yield ""
        return
    with tempfile.TemporaryDirectory() as folder, mlflow_server(python, folder) as (_, port):
        words = [python, "-c", RUNS, f"http://127.0.0.1:{port}"]
        made = subprocess.run(words, input=json.dumps(list(dots)), text=True, stdout=subprocess.PIPE, check=True)
        # The client itself prints where each run can be seen.
        asked = f"runs={quote(made.stdout.splitlines()[-1])}&experiments={quote(json.dumps(['0']))}"
        yield f"http://127.0.0.1:{port}/#/compare-runs?{asked}"
