"""The private Slurm itself: it starts, breaks when told to, and leaves nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dethpc.deploy import processes, slurm_dev
from dethpc.deploy.slurm_conf import cgroup_conf
from dethpc.errors import DethpcError, NotFound, Refused
from tests.cluster import outages
from tests.waiting import LONG_ENOUGH, wait_until


def test_every_node_has_its_gpus(slurm: slurm_dev.Cluster) -> None:
    script = "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"
    lines = slurm.run("srun", "-N4", "--gres=gpu:4", "bash", "-c", script).splitlines()
    assert sorted(lines) == [f"n{i} 0,1,2,3" for i in range(4)]


def test_default_partition_is_the_preemptible_one(slurm: slurm_dev.Cluster) -> None:
    lines = slurm.run("sinfo", "--noheader", "--format=%P|%p").splitlines()
    assert sorted(lines) == ["high|10", "main*|1"] or sorted(line.split("|")[0] for line in lines) == ["high", "main*"]


@pytest.mark.parametrize(
    ("version", "needs"),
    [("slurm-wlm 22.05.8", False), ("slurm 23.02.7", False), ("slurm 23.11.0", True), ("slurm-wlm 24.11.5", True)],
)
def test_releases_that_want_cgroups_are_told_to_do_without(version: str, needs: bool) -> None:
    assert cgroup_conf(version) == ("CgroupPlugin=disabled\n" if needs else "")


def test_two_clusters_at_once_and_down_leaves_no_process_and_no_file(slurm_private) -> None:  # type: ignore[no-untyped-def]
    first, second = slurm_private(nodes=1), slurm_private(nodes=1)
    hidden = ["sbatch", "--output=/dev/null", "--wrap", "setsid env -i sleep 1000 & sleep 1000"]
    first.run(*hidden)
    second.run(*hidden)
    for cluster in (first, second):
        wait_until(lambda c=cluster: len(processes.job_processes(c.folder)) >= 4)  # stepd, shell, two sleeps
    pids = processes.job_processes(first.folder)
    slurm_dev.down(first.folder)
    assert not first.folder.exists()
    assert not [pid for pid in pids if processes.alive(pid)]
    assert len(processes.job_processes(second.folder)) >= 4
    assert second.node_states()["n0"] in ("mix", "alloc")


def test_down_spares_the_shell_that_uses_the_cluster(slurm_private) -> None:  # type: ignore[no-untyped-def]
    cluster = slurm_private(nodes=1)
    bystander = subprocess.Popen(["sleep", "1000"], env={**os.environ, **cluster.env})
    try:
        slurm_dev.down(cluster.folder)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_killed_node_is_down_until_it_is_started(slurm_private) -> None:  # type: ignore[no-untyped-def]
    cluster = slurm_private(nodes=2)
    outages.kill_node(cluster, "n1")
    assert cluster.node_states() == {"n0": "idle", "n1": "down"}
    assert cluster.daemons()["slurmd-n1"] is False
    outages.start_node(cluster, "n1")
    outages.wait_idle(cluster)


def test_killing_a_node_with_its_jobs_ends_their_processes(slurm_private) -> None:  # type: ignore[no-untyped-def]
    cluster = slurm_private(nodes=1)
    cluster.run("sbatch", "--output=/dev/null", "--wrap", "sleep 1000")
    wait_until(lambda: len(processes.job_processes(cluster.folder, "n0")) >= 2)
    outages.kill_node(cluster, "n0", jobs_too=True)
    assert processes.job_processes(cluster.folder) == []


def test_the_controller_comes_back_with_its_jobs(slurm_private) -> None:  # type: ignore[no-untyped-def]
    cluster = slurm_private(nodes=1)
    cluster.run("sbatch", "--hold", "--output=/dev/null", "--wrap", "true")
    outages.stop_controller(cluster)
    assert cluster.daemons()["slurmctld"] is False
    outages.start_controller(cluster)
    assert cluster.run("squeue", "--noheader", "--format=%T").split() == ["PENDING"]


def test_a_deep_folder_is_possible(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["a-rather-long-name"] * 6)
    try:
        cluster = slurm_dev.up(folder, nodes=1, gpus_per_node=0)
    except DethpcError as error:
        if "not installed" in str(error):
            pytest.skip(str(error))
        raise
    link = cluster.folder
    try:
        assert cluster.node_states() == {"n0": "idle"}
        assert slurm_dev.load(folder) == cluster
    finally:
        slurm_dev.down(folder)
    assert not folder.exists() and not link.is_symlink()


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_dev, "search_path", lambda: str(tmp_path))
    with pytest.raises(DethpcError, match="slurmctld.*apt-get install"):
        slurm_dev.up(tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_a_folder_in_use_is_refused(tmp_path: Path, slurm: slurm_dev.Cluster) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(Refused, match="not empty"):
        slurm_dev.up(tmp_path)


def test_no_cluster_no_status(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        slurm_dev.status(tmp_path)
    assert slurm_dev.down(tmp_path / "absent") is None


def test_a_home_that_it_makes_is_its_users_alone(tmp_path: Path, slurm: slurm_dev.Cluster) -> None:
    with pytest.raises(DethpcError):
        slurm_dev.up(tmp_path / "home" / "slurm-dev", nodes=1, extra=("NoSuchOption=1",))
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700


def test_a_start_that_fails_leaves_nothing_and_says_why(tmp_path: Path, slurm: slurm_dev.Cluster) -> None:
    with pytest.raises(DethpcError, match="NoSuchOption"):
        slurm_dev.up(tmp_path / "c", nodes=1, extra=("NoSuchOption=1",))
    assert not (tmp_path / "c").exists()


def test_root_is_not_needed(slurm: slurm_dev.Cluster) -> None:
    """As root, the same is done by somebody who is not."""
    nobody = 65534
    python = next((p for p in (sys.executable, "/usr/bin/python3") if _may_run(p, nobody)), None)
    if os.getuid() != 0 or python is None:
        pytest.skip("only root can become somebody else, and that one needs a Python that it may run")
    code = (
        "import os, sys; from dethpc.deploy import slurm_dev\n"
        "cluster = slurm_dev.up(sys.argv[1], nodes=2)\n"
        "print(os.getuid(), cluster.run('srun', '-N2', '--gres=gpu:2', 'printenv', 'CUDA_VISIBLE_DEVICES').split())\n"
        "slurm_dev.down(sys.argv[1])\n"
    )
    with tempfile.TemporaryDirectory() as home:
        os.chown(home, nobody, nobody)
        done = subprocess.run(
            [python, "-B", "-c", code, f"{home}/c"],
            env={"PATH": slurm_dev.search_path(), "PYTHONPATH": str(Path(__file__).parents[2]), "HOME": home},
            cwd="/",
            user=nobody,
            group=nobody,
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=LONG_ENOUGH,
        )
        assert done.stdout == f"{nobody} ['0,1', '0,1']\n", done.stderr
        assert os.listdir(home) == []


def _may_run(python: str, uid: int) -> bool:
    code = "import sys, dethpc.errors; sys.exit(sys.version_info < (3, 10))"
    try:
        return (
            subprocess.run(
                [python, "-B", "-c", code],
                env={"PYTHONPATH": str(Path(__file__).parents[2])},
                user=uid,
                group=uid,
                extra_groups=[],
                stderr=subprocess.DEVNULL,
                cwd="/",
            ).returncode
            == 0
        )
    except OSError:
        return False


def test_the_command_line_brings_a_cluster_up_and_down(
    slurm: slurm_dev.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from dethpc.cli.nouns.deploy import deploy

    def det(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(deploy, ["slurm-dev", *arguments], catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result.output

    monkeypatch.delenv("SLURM_CONF", raising=False)
    with tempfile.TemporaryDirectory() as parent:
        monkeypatch.setenv("DETHPC_HOME", f"{parent}/one")
        folder = Path(parent) / "one/slurm-dev"
        try:
            assert f"export SLURM_CONF={folder}/slurm.conf\n" in det("up", "--nodes", "2", "--gpus-per-node", "1")
            monkeypatch.setenv("DETHPC_HOME", f"{parent}/another")
            assert f"no cluster in {parent}/another/slurm-dev\n" in det("down", code=1)
            monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
            assert "slurmd-n1    running, idle" in det("status").splitlines()
            told = det("down", "--folder", f"{parent}/third", code=1)
            assert f"no cluster in {parent}/third; SLURM_CONF points at {folder}\n" in told
            assert det("down").startswith(f"Ended 4 daemons of {folder}\n"), "the one that this shell uses"
        finally:
            slurm_dev.down(folder)
        assert not folder.exists()
        assert "no cluster in" in det("down", code=1) and "no cluster in" in det("status", code=1)
