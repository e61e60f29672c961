"""``det model`` against a master that serves."""

from __future__ import annotations

import csv
import io

import pytest
from click.testing import CliRunner

from dethpc.cli import main
from tests.master.conftest import Served, experiment, served, site, trained, trial, uuid_of  # noqa: F401


def test_the_metric_of_a_version_is_rounded_for_people_and_whole_for_programs(served: Served) -> None:  # noqa: F811
    served.put([experiment(1), *trained(trial(3))])

    def det(*arguments: str) -> str:
        result = CliRunner().invoke(main, arguments, env={"DET_MASTER": served.url, "DET_USER_TOKEN": served.token})
        assert result.exit_code == 0, result.output
        return result.stdout

    det("model", "create", "digits")
    det("model", "register-version", "digits", uuid_of(3, 2))
    for command in ("describe", "list-versions"):
        shown = det("model", command, "digits")
        assert "0.3333" in shown and "0.33333" not in shown
    (row,) = csv.DictReader(io.StringIO(det("model", "list-versions", "digits", "--csv")))
    assert float(row["Metric"]) == pytest.approx(1 / 3, abs=1e-15)
