"""What each check makes of facts, from sites that are in order and sites that are not."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dethpc.config.site import SiteConfig, parse_site
from dethpc.doctor import Finding, Level, checks, examine
from dethpc.doctor.facts import Answering, Association, Facts, Login, Node, Slurm
from dethpc.doctor.read import own_addresses
from dethpc.doctor.read_login import quota
from dethpc.doctor.read_slurm import associations, banner, least_priorities, named, qualities, version
from dethpc.domain.nodes import NodeState
from dethpc.rundir.filesystem import filesystem, sqlite_warning
from dethpc.scheduler.slurm.pools import NodeRow

CONFIG = """\
AccountingStorageEnforce = associations,limits,qos
AccountingStorageType   = accounting_storage/slurmdbd
AuthType                = auth/munge
JobRequeue              = 1
KillWait                = 30 sec
MaxArraySize            = 1001
MaxJobCount             = 10000
MessageTimeout          = 10 sec
MinJobAge               = 300 sec
PreemptMode             = REQUEUE
PreemptType             = preempt/partition_prio
PriorityType            = priority/multifactor
PriorityWeightAge       = 1000
PriorityWeightTRES      = (null)
ProctrackType           = proctrack/cgroup
RequeueExit             = (null)
SelectType              = select/cons_tres
SLURM_VERSION           = 23.11.4
SlurmctldParameters     = idle_on_node_suspend
"""
PARTITIONS = """\
PartitionName=gpu AllowGroups=ALL AllowAccounts=ALL AllowQos=normal,scavenger DefaultTime=NONE GraceTime=120 \
MaxTime=2-00:00:00 PriorityTier=1 PreemptMode=REQUEUE State=UP TotalNodes=2 DefMemPerNode=UNLIMITED
PartitionName=high AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL DefaultTime=01:00:00 GraceTime=0 MaxTime=UNLIMITED \
PriorityTier=10 PreemptMode=REQUEUE State=UP TotalNodes=1
"""
SITE = """\
pools:
  a100: {partition: gpu, account: ai, qos: normal, gpu_type: a100, slots_per_node: 4, cpus_per_slot: 8, time_limit: 1-0}
  high: {}
"""
HEALTHY_LOGIN = Login(
    "login1", "/home/ada/.dethpc", "ext4", (3, 11), {"dethpc": "0.1"}, 0o700, 0o600, free_bytes=1 << 40, munge=""
)
NODE = Node(
    "a100", "n0", python="3.11.4", clock=1000.5, asked_at=1000.0, seen_at=1002.0, address="login1:80", devices="0"
)


def config(text: str = CONFIG, **changes: str) -> dict[str, str]:
    lines = (line.partition("=")[::2] for line in text.splitlines())
    return {**{name.strip(): value.strip() for name, value in lines}, **changes}


def slurm(**changes: Any) -> Slurm:
    nodes = [
        NodeRow("n0", "gpu", True, NodeState.IDLE, {"a100": 4}, {}, 64, 0, 512_000, features=frozenset({"nvlink"})),
        NodeRow("n1", "gpu", True, NodeState.IDLE, {"v100": 2}, {}, 16, 0, 64_000),
        NodeRow("n2", "high", False, NodeState.MIXED, {"a100": 4}, {}, 64, 0, 512_000),
    ]
    healthy = Slurm(
        config(),
        named(PARTITIONS, "PartitionName"),
        nodes,
        associations=(Association("ai", ("normal",)),),
        qos={"normal": {"name": "normal"}, "scavenger": {"name": "scavenger"}},
    )
    return replace(healthy, **changes)


def facts(site: str = SITE, **changes: Any) -> Facts:
    return replace(
        Facts(parse_site(site), HEALTHY_LOGIN, slurm(), [NODE], Answering("login1", 80, ("127.0.0.1",))), **changes
    )


def of(found: Facts, check: str) -> list[Finding]:
    return [finding for finding in examine(found) if finding.check == check]


def test_a_healthy_site_has_neither_errors_nor_warnings() -> None:
    findings = list(examine(facts()))
    assert [f for f in findings if f.level in (Level.ERROR, Level.WARNING)] == []
    names = [check.__name__ for check in (checks.FIRST, *checks.OF_SLURM, *checks.OF_MACHINES)]
    assert list(dict.fromkeys(f.check for f in findings)) == names
    assert all(f.found and "None" not in f.found for f in findings)


def test_what_is_not_in_order_comes_with_a_way_out() -> None:
    broken = facts(slurm=slurm(config=config(MaxJobCount="100", KillWait="1 sec", MinJobAge="2 sec")), nodes=None)
    for finding in examine(broken):
        assert finding.level is Level.OK or finding.dethpc or finding.change, finding


def pool(more: str) -> str:
    return f"pools: {{p: {{partition: gpu, {more}}}}}"


def without(name: str) -> dict[str, str]:
    return {key: value for key, value in config().items() if key != name}


WEIGHTS = config(PriorityWeightAge="500", PriorityWeightTRES="CPU=10,GRES/gpu=2000")


@pytest.mark.parametrize(
    ("found", "check", "level", "words"),
    [
        (facts(slurm=None), "slurm", "ok", "on this machine"),
        (facts(slurm=Slurm(problem="no answer")), "slurm", "error", "no answer"),
        (
            facts(slurm=slurm(config=config(SLURM_VERSION="20.11.9"))),
            "slurm",
            "warning",
            "20.11.9; the oldest .* 22.05",
        ),
        (facts(slurm=slurm(config=config(SLURM_VERSION="27.05.0"))), "slurm", "note", "newer"),
        (facts(slurm=slurm(config=config(MaxJobCount="500"))), "job_limits", "warning", "MaxJobCount is 500"),
        (
            facts(slurm=slurm(qos={"normal": {"maxsubmitjobsperuser": "10"}})),
            "job_limits",
            "note",
            "QOS normal lets a user have 10 jobs",
        ),
        (
            facts(slurm=slurm(config=config(MinJobAge="2 sec", AccountingStorageType="accounting_storage/none"))),
            "job_memory",
            "warning",
            "gone between two looks of 60 s",
        ),
        (facts(slurm=slurm(config=config(MinJobAge="2 sec"))), "job_memory", "note", "MinJobAge is 2 s"),
        (facts(slurm=slurm(config=config(MessageTimeout="100 sec"))), "timeouts", "note", "100 s"),
        (
            facts(slurm=slurm(config=config(KillWait="2 sec"))),
            "kill_wait",
            "warning",
            "Slurm kills processes 2 s after TERM",
        ),
        (facts(slurm=slurm(config=config(JobRequeue="0"))), "requeue", "note", "JobRequeue is 0"),
        (facts(slurm=slurm(config=config(RequeueExit="1-5"))), "requeue", "warning", "RequeueExit is 1-5"),
        (facts(slurm=slurm(config=config(PreemptType="preempt/none"))), "preemption", "ok", "no preemption"),
        (facts(slurm=slurm(config=config(PriorityType="priority/basic"))), "order", "ok", "basic: nice orders"),
        (
            facts(slurm=slurm(config=config(PriorityWeightAge="0"))),
            "order",
            "note",
            "all weights 0: .* nice moves nothing",
        ),
        (facts(slurm=slurm(config=config(PriorityWeightAge="9"))), "order", "note", "Age 9: priorities are near 1"),
        (
            facts(slurm=slurm(config=WEIGHTS)),
            "order",
            "ok",
            "Age 500, TRES 2010: nice orders",
        ),
        (
            facts(slurm=slurm(config=WEIGHTS, least_priorities={"gpu": 3, "high": 700})),
            "order",
            "note",
            "pool a100: a job waits with priority 3, though",
        ),
        (facts(slurm=slurm(config=config(PriorityType="priority/site"))), "order", "note", "priority/site: not known"),
        (
            facts(slurm=slurm(partitions=named(PARTITIONS.replace("GraceTime=120", "GraceTime=0"), "PartitionName"))),
            "preemption",
            "warning",
            r"pool a100: .* KILL 30 s later \(GraceTime=0\)",
        ),
        (
            facts(slurm=slurm(partitions=named(PARTITIONS.replace("GraceTime=120", "GraceTime=8"), "PartitionName"))),
            "preemption",
            "note",
            r"pool a100: .* 8 s to checkpoint",
        ),
        (
            facts(slurm=slurm(partitions=named(PARTITIONS.replace("REQUEUE", "SUSPEND"), "PartitionName"))),
            "preemption",
            "warning",
            "suspended",
        ),
        (
            facts(
                slurm=slurm(
                    config=config(PreemptType="preempt/qos"),
                    qos={"normal": {"preemptmode": "cancel", "gracetime": "00:02:00"}},
                )
            ),
            "preemption",
            "ok",
            r"120 s to checkpoint \(PreemptMode=CANCEL\)",
        ),
        (facts(pool("time_limit: 3-0")), "time_limits", "error", "time_limit is 3-00:00:00, .* 2-00:00:00"),
        (facts("pools: {high: {}}"), "time_limits", "ok", "01:00:00"),
        (facts(pool("time_limit: 5")), "time_limits", "warning", "00:05:00"),
        (facts(slurm=slurm(config=config(ProctrackType="proctrack/pgid"))), "signals", "warning", "escape"),
        (
            facts(slurm=slurm(config=config(JobContainerType="job_container/tmpfs"))),
            "signals",
            "note",
            "/tmp of its own",
        ),
        (
            facts(slurm=slurm(config=config(AccountingStorageType="(null)"))),
            "accounting",
            "note",
            "keeps no accounts",
        ),
        (facts(slurm=slurm(has_sacct=False)), "accounting", "note", "not on PATH"),
        (
            facts(slurm=slurm(config=config(SlurmctldParameters="rl_enable,rl_refill_rate=4"))),
            "rate_limit",
            "note",
            "30 requests at once and 4 a second",
        ),
        (
            facts(SITE + "limits: {submit_per_second: 1}", slurm=slurm(config=config(SlurmctldParameters="rl_enable"))),
            "rate_limit",
            "ok",
            "2 a second",
        ),
        (facts("pools: {a: {partition: gpuu}}"), "pools", "error", "no partition 'gpuu'; there are gpu, high"),
        (facts(pool("gpu_type: h100")), "pools", "error", "no node .* gpu_type h100; GPU types there: a100, v100"),
        (facts(pool("constraint: ib")), "pools", "error", "constraint ib; .* features: nvlink"),
        (
            facts(slurm=slurm(partitions=named(PARTITIONS.replace("State=UP", "State=DOWN"), "PartitionName"))),
            "pools",
            "warning",
            "partition gpu is DOWN",
        ),
        (facts("cluster_name: x"), "pools", "note", "no pools are configured"),
        (facts(pool("qos: gold")), "access", "error", "allows qos normal,scavenger, not gold"),
        (facts(pool("qos: scavenger")), "access", "error", "'scavenger' is not yours"),
        (facts("pools: {high: {qos: diamond}}"), "access", "error", "no QOS 'diamond'; there are normal, scavenger"),
        (facts(pool("account: bio")), "access", "error", "account 'bio' is not yours; you have ai"),
        (facts(pool("reservation: r1")), "access", "error", "no reservation 'r1'"),
        (facts(slurm=slurm(associations=None, qos=None)), "access", "note", "cannot be looked up"),
        (facts(pool("slots_per_node: 8")), "shape", "error", "no node has 8 GPUs, 8 cores"),
        (facts(pool("slots_per_node: 4, cpus_per_slot: 32")), "shape", "error", "128 cores"),
        (facts(pool("slots_per_node: 4, mem_per_slot: 400G")), "shape", "error", "1638400 MB"),
        (facts(slurm=slurm(nodes=[NodeRow("n0", "gpu", True, NodeState.IDLE, cpus=8)])), "gres", "note", "no GRES"),
        (
            facts(pool("slot_type: cuda"), slurm=slurm(nodes=[NodeRow("n0", "gpu", True, NodeState.IDLE, cpus=8)])),
            "gres",
            "error",
            "no GPUs in GRES",
        ),
        (facts(slurm=slurm(config=config(ConstrainDevices="no"))), "gres", "note", "not theirs"),
        (facts(nodes=[replace(NODE, devices=None)]), "gres", "warning", "no CUDA_VISIBLE_DEVICES"),
        (facts(nodes=None), "shared_fs", "note", "not looked at"),
        (facts(nodes=[replace(NODE, home="Read-only file system")]), "shared_fs", "error", "cannot write .* Read-only"),
        (facts(nodes=[Node("a100", problem="DETHPC_HOME is not there")]), "shared_fs", "error", "is not there"),
        (
            facts(
                pool("prologue: ['module load cuda']"),
                nodes=[
                    replace(NODE, pool="p", prologue='"module load cuda" exits 127: bash: module: command not found')
                ],
            ),
            "prologue",
            "error",
            'its prologue fails on n0: "module load cuda" exits 127: bash: module: command not found',
        ),
        (
            facts(nodes=[replace(NODE, containers={"apptainer": ""})]),
            "containers",
            "ok",
            "apptainer starts a container on n0",
        ),
        (
            facts(nodes=[replace(NODE, containers={"podman": "cannot clone (this node has no user namespaces)"})]),
            "containers",
            "error",
            "podman starts no container on n0: cannot clone .this node has no user namespaces",
        ),
        (
            facts(login=replace(HEALTHY_LOGIN, job_python="/py3", lacking=["JupyterLab"])),
            "services",
            "note",
            "JupyterLab is not installed for /py3",
        ),
        (facts(login=replace(HEALTHY_LOGIN, lacking=["sshd"]), nodes=None), "services", "note", "no sshd on login1"),
        (facts(login=replace(HEALTHY_LOGIN, lacking=["sshd"])), "services", "ok", "n0 has sshd"),
        (facts(nodes=[replace(NODE, sshd=False)]), "services", "note", r"no sshd on n0 \(pool a100\)"),
        (facts(login=replace(HEALTHY_LOGIN, storage="/data/x")), "storage", "ok", "/data/x .* from 1 node, too"),
        (
            facts(login=replace(HEALTHY_LOGIN, storage="/data/x", storage_problem="/data: Permission denied")),
            "storage",
            "error",
            "nothing can be written to /data/x .*Permission denied",
        ),
        (
            facts(login=replace(HEALTHY_LOGIN, storage="/data/x"), nodes=[replace(NODE, storage="No such file")]),
            "storage",
            "error",
            "n0 does not share /data/x",
        ),
        (
            facts(login=replace(HEALTHY_LOGIN, filesystem="nfs4")),
            "database",
            "note",
            "locks work between login1 and n0",
        ),
        (facts(login=replace(HEALTHY_LOGIN, filesystem="lustre"), nodes=None), "database", "warning", "lustre"),
        (facts(nodes=[replace(NODE, lock="free")]), "database", "warning", "does not feel a lock"),
        (facts(login=replace(HEALTHY_LOGIN, locks="No locks available")), "database", "error", "No locks"),
        (
            facts(SITE + "database: postgresql://db/x", login=replace(HEALTHY_LOGIN, locks="x")),
            "database",
            "ok",
            "server",
        ),
        (facts(nodes=[replace(NODE, clock=900.0)]), "clock", "error", "100 s or more behind"),
        (facts(nodes=[replace(NODE, clock=1012.0)]), "clock", "warning", "10 s or more ahead"),
        (
            facts(nodes=[replace(NODE, master="timed out")]),
            "reach",
            "warning",
            "n0 does not reach login1:80: timed out",
        ),
        (facts(login=replace(HEALTHY_LOGIN, munge="no socket")), "munge", "error", "no socket"),
        (facts(nodes=[replace(NODE, python="3.6.8")]), "python", "error", "3.6.8; runs need 3.9"),
        (facts(nodes=[replace(NODE, python="error: No such file")]), "python", "error", "does not run on n0"),
        (
            facts(login=replace(HEALTHY_LOGIN, packages={"determined": "0.38.1"})),
            "packages",
            "error",
            "determined 0.38.1",
        ),
        (facts(login=replace(HEALTHY_LOGIN, kills_at_logout=True, lingers=False)), "login_node", "warning", "log out"),
        (facts(login=replace(HEALTHY_LOGIN, kills_at_logout=True, lingers=True)), "login_node", "ok", "login1"),
        (facts(login=replace(HEALTHY_LOGIN, cpu_seconds=600)), "login_node", "warning", "600 s of CPU"),
        (facts(login=replace(HEALTHY_LOGIN, memory_limit=256 << 20)), "login_node", "warning", "256 MiB"),
        (facts(login=replace(HEALTHY_LOGIN, free_bytes=5 << 30)), "disk", "warning", "5.0 GiB"),
        (facts(login=replace(HEALTHY_LOGIN, free_bytes=5 << 20)), "disk", "error", "0.0 GiB"),
        (facts(login=replace(HEALTHY_LOGIN, free_files=900)), "disk", "error", "900 more files"),
        (facts(nodes=[replace(NODE, free_bytes=1 << 20)]), "disk", "warning", "n0: 0.0 GiB where contexts"),
        (facts(login=replace(HEALTHY_LOGIN, quota="98 of 100 KiB")), "quota", "warning", "98 of 100 KiB"),
        (facts(login=replace(HEALTHY_LOGIN, token_mode=0o644)), "umask", "error", "0644"),
        (facts(login=replace(HEALTHY_LOGIN, home_mode=0o755)), "umask", "warning", "0755"),
    ],
)
def test_a_check_says_what_is_so(found: Facts, check: str, level: str, words: str) -> None:
    said = of(found, check)
    assert any(f.level.value == level and re.search(words, f.found) for f in said), said


def test_of_a_pool_without_a_partition_nothing_else_is_said() -> None:
    found = list(examine(facts("pools: {gone: {slot_type: rocm}}", nodes=None)))
    said = {f.check for f in found if f.level in (Level.ERROR, Level.WARNING)}
    assert said == {"pools"}


def test_without_slurm_only_this_machine_is_judged() -> None:
    found = list(examine(Facts(SiteConfig(), HEALTHY_LOGIN)))
    assert {f.check for f in found}.isdisjoint(check.__name__ for check in checks.OF_SLURM)
    assert all(f.level is Level.OK for f in found)


# --- reading what others print


def test_slurms_records_are_read() -> None:
    found = slurm()
    assert (found.number("KillWait"), found.word("ProctrackType"), found.word("RequeueExit")) == (30, "cgroup", "")
    assert (found.limit("gpu", "MaxTime"), found.limit("gpu", "DefaultTime"), found.limit("high", "MaxTime")) == (
        172800,
        None,
        None,
    )
    assert [version(text) for text in ("22.05.8", "25.11.2-1", "", "x")] == [(22, 5), (25, 11), None, None]
    assert associations("ai||normal,long\nbio|gpu|\n") == (
        Association("ai", ("normal", "long")),
        Association("bio", (), "gpu"),
    )
    assert qualities("normal|00:00:00|cluster||\nlong|00:02:00|requeue|7-00:00:00|100\n")["long"] == {
        "name": "long",
        "gracetime": "00:02:00",
        "preemptmode": "requeue",
        "maxwall": "7-00:00:00",
        "maxsubmitjobsperuser": "100",
    }


QUOTA = """\
Disk quotas for user ada (uid 1001):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
fs1:/home 9900000* 9800000 10000000 0  120  0  0  0
fs1:/scratch 100 9800000 10000000 0  97  0  100  0
/dev/sda1 1 10 10 0 1 10 10 0
"""


@pytest.mark.parametrize(
    ("device", "said"),
    [("fs1:/home", "9900000 of 9800000 KiB"), ("fs1:/scratch", "97 of 100 files"), ("/dev/sda1", ""), ("other", "")],
)
def test_quotas_are_read(device: str, said: str) -> None:
    assert quota(QUOTA, device) == said


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /home rw,relatime shared:2 - nfs4 fs1:/home rw,vers=4.2
31 30 0:41 / /home/scratch\\040space rw - lustre 10.0.0.1@tcp:/scratch rw
32 22 0:42 / /gpfs rw - fuse.sshfs me@there rw
33 22 0:43 / /Büro\\134a rw - nfs4 fs2:/büro rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "doubtful"),
    [
        ("/home/ada/.dethpc", "nfs4", True),
        ("/home/scratch space/x", "lustre", True),
        ("/homes", "ext4", False),
        ("/gpfs", "fuse.sshfs", False),
        ("/Büro\\a/ada", "nfs4", True),
    ],
)
def test_sqlite_on_a_network_file_system_is_said(path: str, kind: str, doubtful: bool, tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS, "utf-8")
    assert filesystem(Path(path), mounts) == kind
    said = sqlite_warning(kind, path, None)
    assert (said is not None) is doubtful and (not said or f"{path}, on {kind}" in said)
    assert sqlite_warning(kind, path, "postgresql://db/x") is None


def test_the_page_has_every_check_with_its_docstring() -> None:
    page = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", page, re.MULTILINE))
    every = (checks.FIRST, *checks.OF_SLURM, *checks.OF_MACHINES)
    assert rows == {check.__name__: (check.__doc__ or "").strip() for check in every}


def test_of_the_jobs_that_wait_the_least_priority_counts_but_not_of_those_that_are_held_or_step_back() -> None:
    said = "4294901758|0|gpu|\n1|0|gpu,high|\n0|0|high|\n1|50|low|\n\n"
    assert least_priorities(said) == {"gpu": 1, "high": 1}


def test_a_command_that_prints_lines_of_its_own_is_named() -> None:
    greets = {"squeue": "Maintenance on Tuesday", "sinfo": "Maintenance on Tuesday", "sbatch": "hello"}
    found = [f for f in examine(facts(slurm=slurm(banners=greets))) if f.check == "banners"]
    assert [(f.level, f.found) for f in found] == [
        (Level.NOTE, "squeue, sinfo print lines that are not Slurm's: 'Maintenance on Tuesday'"),
        (Level.NOTE, "sbatch prints lines that are not Slurm's: 'hello'"),
    ]
    assert [f.level for f in examine(facts()) if f.check == "banners"] == [Level.OK]


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("slurm 24.11.5\n", ""),
        ("slurm-wlm 22.05.8\n\n", ""),
        ("\nWelcome\nslurm 23.11.4-1.2\n", "Welcome"),
        ("slurm 23.02.7\nslurm is down for maintenance\n", "slurm is down for maintenance"),
    ],
)
def test_a_line_beside_the_release_is_not_slurms(output: str, line: str) -> None:
    assert banner(output) == line


@pytest.mark.parametrize(
    ("addresses", "level", "words"),
    [
        (("127.0.0.1", "::1"), Level.OK, "on loopback alone"),
        (("127.0.0.1", "::1", "10.0.0.5"), Level.OK, "at 10.0.0.5 port 80 and on loopback"),
        (("127.0.0.1", "10.0.0.5", "192.168.1.5", "fd00::5"), Level.NOTE, "10.0.0.5, 192.168.1.5, fd00::5"),
        (("127.0.0.1", "8.8.8.8", "10.0.0.5"), Level.WARNING, "at 8.8.8.8 port 80, which the whole Internet may reach"),
        (("127.0.0.1", "2a00:1450::1"), Level.WARNING, "2a00:1450::1"),
    ],
)
def test_who_can_connect_to_the_master_is_told(addresses: tuple[str, ...], level: Level, words: str) -> None:
    findings = list(checks.login.listening(facts(answering=Answering("login1", 80, addresses))))
    assert findings[0].level is level and words in findings[0].found
    assert list(checks.login.listening(facts(answering=None))) == [], "no master runs here"


def test_the_addresses_of_this_machine_are_read_from_the_kernel() -> None:
    fib = """Local:
  +-- 0.0.0.0/0 3 0 5
     |-- 10.0.0.0
        /24 link UNICAST
     |-- 10.0.0.5
        /32 host LOCAL
     |-- 10.0.0.255
        /32 link BROADCAST
        |-- 127.0.0.1
           /32 host LOCAL
"""
    inet6 = """00000000000000000000000000000001 01 80 10 80       lo
fe80000000000000a00027fffe4e66a1 02 40 20 80     eth0
fd000000000000000000000000000005 02 40 00 80     eth0
"""
    assert own_addresses(fib, inet6) == ["10.0.0.5", "127.0.0.1", "::1", "fd00::5"]
