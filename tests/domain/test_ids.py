"""Names of jobs: a person reads them, and the master finds the run of each."""

from __future__ import annotations

import pytest

from dethpc.domain.ids import earlier_job_name, job_name, plain_title, run_of_job

CLUSTER = "06a91921-7d3c-4f60-9c39-000000000000"


def test_a_jobs_name_begins_with_what_a_person_looks_for() -> None:
    assert job_name(CLUSTER, "16.31.1", "digits-asha") == "16.31.1_digits-asha_06a91921"
    assert job_name(CLUSTER, "16.31.1", "日本") == "16.31.1_06a91921"
    assert job_name(CLUSTER, "16.31.1") == "16.31.1_06a91921"


@pytest.mark.parametrize(
    "title",
    ["digits", "", "a_b", "x" * 500, "_ffffffff", "日本", 'it\'s %j $(x) "q"\n#SBATCH --wrap=x', "a=b,c|d;e", "--help"],
)
def test_the_run_is_found_in_every_name_of_its_job_and_in_no_other_clusters(title: str) -> None:
    name = job_name(CLUSTER, "16.31.1", title)
    assert run_of_job(CLUSTER, name) == "16.31.1" and len(name) <= 49
    assert not set(name) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_")
    assert run_of_job("ffffffff-0000", name) == ""


def test_jobs_of_earlier_releases_are_known_and_those_of_others_are_not() -> None:
    assert run_of_job(CLUSTER, earlier_job_name(CLUSTER, "16.31.1")) == "16.31.1"
    for name in ("mine", "", "det-doctor", "det-ffffffff-16.31.1", "16.31.1", "_", "06a91921"):
        assert run_of_job(CLUSTER, name) == ""


def test_what_remains_of_a_title_is_bounded() -> None:
    assert plain_title("  CIFAR 10 / ResNet-50 (v2)  ") == "CIFAR-10-ResNet-50-v2"
    assert plain_title("...") == "" and len(plain_title("a" * 100)) == 32
