"""Site configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dethpc.config import load
from dethpc.config.site import EVERYWHERE, SiteConfig, find_site, load_site, parse_site
from dethpc.errors import ConfigError

SITE = """\
cluster_name: alps
default_pool: a100
pools:
  debug: {partition: debug, time_limit: 30, scheduler: fifo}
  a100:
    partition: gpu
    qos: normal
    account: proj
    reservation: r1
    constraint: a100&nvlink
    slot_type: cuda
    gpu_type: a100
    slots_per_node: 4
    cpus_per_slot: 16
    mem_per_slot: 60G
    time_limit: 1-00:00:00
    time_min: 1-0
    container_runtime: none
    window: 20
    sbatch_args: [--exclusive]
    prologue: |
      module purge
      module load cuda
checkpoint_storage: {type: shared_fs, host_path: /scratch/ckpt}
templates: /etc/dethpc/sbatch
master: {host: login1, port: 8080}
limits: {submit_per_second: 0.5, submit_burst: 5}
"""


def test_every_field_is_taken_over() -> None:
    site = parse_site(SITE)
    pool = site.pools["a100"]
    assert (site.cluster_name, site.pool, site.templates) == ("alps", "a100", "/etc/dethpc/sbatch")
    assert (pool.constraint, pool.window, pool.prologue) == ("a100&nvlink", 20, ["module purge", "module load cuda"])
    assert (pool.time_min_seconds, pool.whole_nodes, site.pools["debug"].time_min_seconds) == (86400, False, None)
    assert (pool.time_limit_seconds, site.pools["debug"].time_limit_seconds) == (86400, 1800)
    assert site.checkpoint_storage == {"type": "shared_fs", "host_path": "/scratch/ckpt"}
    assert (site.master.port, site.limits.submit_burst) == (8080, 5)


def test_a_site_without_a_word_is_a_site() -> None:
    site = load_site(None)
    assert site == SiteConfig() == parse_site("")
    assert (site.pools, site.pool, site.checkpoint_storage) == ({}, "", None)


def test_its_storage_goes_under_the_experiments() -> None:
    text = "entrypoint: x\nsearcher: {name: single, metric: l}\n"
    loaded = load(text, defaults={"checkpoint_storage": parse_site(SITE).checkpoint_storage})
    assert loaded.effective()["checkpoint_storage"]["host_path"] == "/scratch/ckpt"


def test_its_data_layer_goes_under_the_experiments() -> None:
    text = "entrypoint: x\nsearcher: {name: single, metric: l}\n"
    site = parse_site("data_layer: {host_storage_path: /local}\n")
    assert parse_site("").data_layer is None
    defaults = {"data_layer": site.data_layer}
    assert load(text, defaults=defaults).effective()["data_layer"]["host_storage_path"] == "/local"
    own = f"{text}data_layer: {{type: gcs, bucket: b, bucket_directory_path: p}}\n"
    assert "host_storage_path" not in load(own, defaults=defaults).effective()["data_layer"]


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        ("cluster: x", "cluster", "did you mean 'cluster_name'"),
        ("storage: {}", "storage", "unknown"),
        ("pools: {a: {partitoin: x}}", "pools.a.partitoin", "did you mean 'partition'"),
        ("pools: {a: {partition: 'x y'}}", "pools.a.partition", "one word"),
        ("pools: {a: {time_limit: soon}}", "pools.a.time_limit", "D-HH:MM:SS"),
        ("pools: {a: {mem_per_slot: 8Q}}", "pools.a.mem_per_slot", "8G"),
        ("pools: {a: {scheduler: fair}}", "pools.a.scheduler", "did you mean 'fair_share'"),
        ("pools: {a: {slot_type: cpu, gpu_type: a100}}", "pools.a.gpu_type", "has no GPUs; leave it out"),
        ("pools: {a: {gres: 'gpu:4'}}", "pools.a.gres", "{slots}"),
        ("pools: {a: {gres: 'gres/x/gpu:{slots}:{type}:1'}}", "pools.a.gres", "sbatch would not take"),
        ("pools: {a: {gpu_type: 'a100:2'}}", "pools.a.gpu_type", "a GPU type"),
        ("pools: {a: {gres: none, slot_type: cuda}}", "pools.a.slots_per_node", "only the site can say"),
        ("pools: {a: {gres: none, slots_per_node: 4}}", "pools.a.slot_type", "only the site can say"),
        ("pools: {a: {time_min: 60}}", "pools.a.time_min", "time_limit"),
        ("pools: {a: {time_min: 60, time_limit: 30}}", "pools.a.time_min", "at most time_limit"),
        ("pools: {a: {container_runtime: docker}}", "pools.a.container_runtime", "apptainer"),
        ("pools: {a: {container_runtime: podman, container: []}}", "pools.a.container_runtime", "not both"),
        ("pools: {a: {container: {runtime: docker}}}", "pools.a.container[0].runtime", "charliecloud"),
        ("pools: {a: {container: {binds: [/x]}}}", "pools.a.container[0].runtime", "required"),
        (
            "pools: {a: {container: [{runtime: podman}, {runtime: podman}]}}",
            "pools.a.container",
            "podman is there twice",
        ),
        ("pools: {a: {container: {runtime: podman, binds: [x:/y]}}}", "pools.a.container[0].binds[0]", "/path/on/node"),
        ("pools: {a: {container: {runtime: podman, binds: ['/x:/y:z']}}}", "pools.a.container[0].binds[0]", ":ro"),
        ("pools: {a: {container: {runtime: podman, variables: ['A B']}}}", "pools.a.container[0].variables[0]", "NCCL"),
        ("pools: {a: {slots_per_node: 4}, a: {slots_per_node: 8}}", "pools.a", "twice"),
        ("pools: {a: 3}", "pools.a", "a mapping with description"),
        ("default_pool: a", "default_pool", "there are none"),
        ("checkpoint_storage: {type: shared_fs, host_path: x}", "checkpoint_storage.host_path", "absolute"),
        ("templates: here", "templates", "absolute"),
        ("master: {port: 70000}", "master.port", "<= 65535"),
        ("limits: {submit_per_second: 0}", "limits.submit_per_second", "> 0"),
        ("scheduler: pbs", "scheduler", "auto, slurm, local"),
    ],
)
def test_a_mistake_is_named_with_what_is_allowed(text: str, field: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_site("\n" + text, "site.yaml")
    (problem,) = caught.value.problems
    assert (problem.file, problem.line, problem.field) == ("site.yaml", 2, field)
    assert words in str(problem)


@pytest.mark.parametrize("kind", ["3090", "2080ti", "1g.5gb", "nvidia_a100-sxm4-80gb"])
def test_a_gpu_type_has_any_characters(kind: str) -> None:
    pool = parse_site(f"pools: {{a: {{gpu_type: {kind}}}}}").pools["a"]
    assert pool.gres_of(2) == f"gpu:{kind}:2"


def test_all_mistakes_come_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_site("clutser_name: x\npools:\n  a:\n    window: 0\n  b: {qos: 3}\ndefault_pool: 3\n")
    assert [problem.line for problem in caught.value.problems] == [1, 4, 5, 6]


def found(env: dict[str, str], files: set[str]) -> Any:
    return find_site(env, "/home/me/.dethpc", files.__contains__)


def test_the_file_is_looked_for_in_order() -> None:
    mine, named = "/home/me/.dethpc/site.yaml", "/x.yaml"
    assert found({"DETHPC_SITE_CONFIG": named}, {named, mine, EVERYWHERE}) == named
    assert found({}, {named, mine, EVERYWHERE}) == mine
    assert found({}, {EVERYWHERE}) == EVERYWHERE
    assert found({}, set()) is None


def test_a_named_file_must_be_there() -> None:
    with pytest.raises(ConfigError, match="DETHPC_SITE_CONFIG"):
        found({"DETHPC_SITE_CONFIG": "/x.yaml"}, {EVERYWHERE})


def test_a_file_is_read_or_its_failure_said(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    with pytest.raises(ConfigError, match="No such file"):
        load_site(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_site(path)
    path.write_text(SITE)
    assert load_site(path).cluster_name == "alps"


@pytest.mark.parametrize(("written", "meant"), [("auto", "auto"), ("on", "on"), ("off", "off"), ("'off'", "off")])
def test_tls_is_switched_as_yaml_spells_it(written: str, meant: str) -> None:
    assert parse_site(f"master: {{tls: {written}}}").master.tls == meant


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("{tls: maybe}", "auto"),
        ("{key: /k.pem}", "certificate is missing"),
        ("{certificate: c.pem}", "an absolute path"),
        ("{certificate: /c.pem, tls: off}", "where there is a certificate"),
    ],
)
def test_a_certificate_that_cannot_be_meant_is_refused(section: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_site(f"master: {section}")


def test_a_large_file_is_refused_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    with open(path, "wb") as file:
        file.truncate(1 << 33)
    with pytest.raises(ConfigError, match="at most 256 KiB"):
        load_site(path)


def test_fields_of_an_earlier_release_that_have_no_effect_are_named() -> None:
    site = parse_site("master: {auth: munge, munge_socket: /run/munge/munge.socket.2, port: 8080}")
    assert [line.split()[0] for line in site.ignored] == ["master.auth", "master.munge_socket"]
    assert parse_site("master: {port: 8080}").ignored == []
