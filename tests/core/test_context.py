"""What a task knows of itself, the searcher's operations, and how the context starts and ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dethpc
from dethpc import core
from dethpc.errors import ConfigError
from tests.core.conftest import TOKEN, Cluster, Workers, results

ROOT = Path(__file__).parents[2]


def test_a_task_knows_what_the_cluster_told_it(cluster: Cluster) -> None:
    cluster.info["latest_checkpoint"] = "some-uuid"
    cluster.enter()
    info = dethpc.get_cluster_info()
    assert info is not None and info is dethpc.get_cluster_info()
    assert (info.task_type, info.task_id, info.allocation_id, info.session_token) == ("TRIAL", "1.3", "1.3.2.0", TOKEN)
    assert (info.cluster_id, info.agent_id, info.slot_ids, info.gpu_uuids) == ("c1", "node1", [0], [])
    assert (info.container_addrs, info.container_rank, info.container_slot_counts) == (["127.0.0.1"], 0, [1])
    assert (info.trial.trial_id, info.trial.experiment_id, info.trial.trial_seed) == (3, 1, 7)
    assert (info.trial.hparams, info.user_data, info.latest_checkpoint) == ({"lr": 0.1}, {"path": "/d"}, "some-uuid")


def test_another_kind_of_task_has_no_trial(cluster: Cluster) -> None:
    cluster.info.update(task_type="NOTEBOOK", trial=None, rendezvous=None, latest_checkpoint="x")
    cluster.enter()
    info = dethpc.get_cluster_info()
    assert info is not None and info.latest_checkpoint is None and info.user_data == {}
    assert (info.container_addrs, info.container_rank) == (["127.0.0.1"], 0)
    with pytest.raises(RuntimeError, match="NOTEBOOK"):
        _ = info.trial


def test_a_job_that_code_of_a_trial_submits_is_not_the_trial(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """sbatch hands the environment on, and two writers would spoil the trial's journal."""
    cluster.info["slurm_job_id"] = "71"
    for here, inside in (("71", True), ("72", False)):
        monkeypatch.setenv("SLURM_JOB_ID", here)
        cluster.enter()
        assert (dethpc.get_cluster_info() is not None) is inside
    assert "Slurm job 72 was submitted by code of 1.3, which job 71 trains" in capfd.readouterr().err


def test_off_the_cluster_there_is_no_info(off_cluster: Path) -> None:
    assert dethpc.get_cluster_info() is None


def test_an_unreadable_info_is_not_taken_for_being_off_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DETHPC_INFO", str(tmp_path / "missing.json"))
    with pytest.raises(RuntimeError, match=r"missing\.json"):
        dethpc.get_cluster_info()


def test_several_slots_need_a_distributed_context(cluster: Cluster) -> None:
    cluster.info["slot_ids"] = [0, 1]
    cluster.enter()
    with pytest.raises(ValueError, match="several slots.*launch.torch_distributed.*from_torch_distributed"):
        core.init()


def test_a_wrong_checkpoint_storage_is_refused_at_once(cluster: Cluster) -> None:
    cluster.enter()
    with pytest.raises(ConfigError):
        core.init(checkpoint_storage={"type": "floppy"})
    with pytest.raises(TypeError):
        core.init(checkpoint_storage=3)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_searchers_operation_is_completed(cluster: Cluster) -> None:
    cluster.info["trial"]["config"]["searcher"]["max_length"] = {"epochs": 4}
    cluster.enter()
    with core.init() as context:
        assert context.searcher.get_configured_units() is core.Unit.EPOCHS
        for op in context.searcher.operations():
            assert op.length == 4
            op.report_progress(1)
            op.report_completed(0.5)
            with pytest.raises(RuntimeError, match="once"):
                op.report_completed(0.5)
        with pytest.raises(RuntimeError, match="before asking for"):
            list(context.searcher.operations())
    assert [(event.kind, event.data) for event in cluster.journal()] == [
        ("progress", {"progress": 0.25}),
        ("searcher_op", {"length": 4, "unit": "EPOCHS", "metric": 0.5}),
    ]


def test_without_a_length_there_is_no_searcher(cluster: Cluster) -> None:
    cluster.enter()
    with core.init() as context, pytest.raises(ValueError, match="max_length"):
        context.searcher.operations()


def test_workers_iterate_over_the_operations_together(off_cluster: Path, workers: Workers) -> None:
    body = """
    import warnings; warnings.simplefilter("ignore")
    from dethpc import core
    with core.init(distributed=DistributedContext.from_torch_distributed()) as context:
        for op in context.searcher.operations():
            say(op.length)
            if rank == 0: op.report_completed(1)
            else:
                try: op.report_completed(1)
                except RuntimeError as error: say(str(error))
        say("done")
    """
    chief, worker = results(workers.start(body, 2))
    assert chief == [1, "done"]
    assert worker[0] == 1 and "only the chief" in worker[1] and worker[2] == "done"


def test_the_whole_api_works_on_a_bare_interpreter(cluster: Cluster) -> None:
    """No site-packages: what a compute node has."""
    cluster.enter()
    code = (
        "from dethpc import core\n"
        "with core.init() as c:\n"
        "    c.train.report_training_metrics(1, {'loss': 1.0})\n"
        "    with c.checkpoint.store_path({'steps_completed': 1}) as (p, u): (p / 'x').write_text('x')\n"
        "    with c.checkpoint.restore_path(u) as p: assert (p / 'x').read_text() == 'x'\n"
        "    assert not c.preempt.should_preempt()\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-S", "-c", code], env=env, check=True)
    assert [event.kind for event in cluster.journal()] == ["metrics", "checkpoint"]
    assert json.loads(cluster.info_file.read_text())["session_token"] == TOKEN
