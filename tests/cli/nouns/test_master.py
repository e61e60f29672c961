"""``det`` and its own master: started when needed, one of them, found again, stopped."""

from __future__ import annotations

import getpass
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dethpc.cli import master_process
from dethpc.master.serve import LOG_BYTES
from tests.waiting import LONG_ENOUGH, wait_until

pytestmark = pytest.mark.usefixtures("no_master_is_left")


def master_file(home: Path) -> dict[str, Any]:
    return master_process.read_master_file(home)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture
def home(environment: dict[str, str]) -> Path:
    return Path(environment["DETHPC_HOME"])


@pytest.fixture
def no_master_is_left(home: Path) -> Iterator[None]:
    yield
    pid = int(master_file(home).get("pid") or 0)
    if pid and not gone(pid):
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: gone(pid))


def test_det_starts_its_own_master_once(det: Any, home: Path) -> None:
    first = det("experiment", "list")
    assert first.returncode == 0, first.stderr
    url = master_file(home)["url"]
    assert first.stderr == f"started master at {url}\n"
    second = det("experiment", "list")
    assert (second.returncode, second.stderr) == (0, "")
    assert master_file(home)["url"] == url


def test_two_at_once_end_up_with_one_master(environment: dict[str, str], home: Path) -> None:
    words = [sys.executable, "-m", "dethpc.cli", "master", "info", "--json"]
    both = [
        subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in "ab"
    ]
    answers = []
    for process in both:
        out, err = process.communicate(timeout=LONG_ENOUGH)
        assert process.returncode == 0, err
        answers.append(json.loads(out))
    assert answers[0]["url"] == answers[1]["url"] == master_file(home)["url"]
    assert answers[0]["masterId"] == answers[1]["masterId"]


def test_up_down_up(det: Any, home: Path) -> None:
    assert det("master", "up").returncode == 0
    first = master_file(home)
    assert det("master", "up").stdout == f"A master is already running: {first['url']}\n"
    down = det("master", "down")
    assert (down.returncode, down.stdout) == (0, f"Stopped the master (pid {first['pid']})\n")
    assert gone(first["pid"])
    assert det("master", "down").stdout.startswith("No master is running")
    assert det("master", "up").returncode == 0
    assert master_file(home)["generation"] == first["generation"] + 1


def test_a_long_log_is_put_aside(det: Any, home: Path) -> None:
    log = home / "log" / "master.log"
    log.parent.mkdir(parents=True)
    log.write_text("old\n" * (LOG_BYTES // 4))
    assert det("master", "up").returncode == 0
    assert log.stat().st_size < LOG_BYTES // 2 and log.with_name("master.log.1").stat().st_size >= LOG_BYTES
    assert "listens at" in det("master", "logs").stdout


def test_a_killed_master_is_replaced(det: Any, home: Path) -> None:
    det("master", "up")
    pid = master_file(home)["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: gone(pid))
    done = det("experiment", "list")
    assert done.returncode == 0 and "started master at" in done.stderr
    assert master_file(home)["pid"] != pid


@pytest.mark.everything
def test_a_master_that_lives_and_does_not_answer_is_named_with_what_to_do(det: Any, home: Path) -> None:
    det("master", "up")
    pid = master_file(home)["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        done = det("experiment", "list")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert done.returncode == 1 and f"(pid {pid}) runs and does not answer" in done.stderr
    assert f"kill -CONT {pid}" in done.stderr and f"kill -9 {pid}" in done.stderr
    assert det("experiment", "list").returncode == 0 and master_file(home)["pid"] == pid


def test_a_token_file_that_was_changed_under_a_master_is_named_with_what_to_do(det: Any, home: Path) -> None:
    det("master", "up")
    pid, token = master_file(home)["pid"], home / "token"
    token.write_text("another" + token.read_text())
    done = det("experiment", "list")
    assert done.returncode == 1
    assert f"(pid {pid}) does not know the token in {token}: the file was changed after it started" in done.stderr
    assert "kill" not in done.stderr and "det master down" in done.stderr
    assert det("master", "down").returncode == 0
    assert det("experiment", "list").returncode == 0


def test_a_master_in_the_foreground_ends_with_ctrl_c(environment: dict[str, str], home: Path) -> None:
    process = subprocess.Popen([sys.executable, "-m", "dethpc.cli", "master", "up", "--foreground"], env=environment)
    wait_until(lambda: bool(master_file(home).get("url")))
    assert master_file(home)["pid"] == process.pid
    process.send_signal(signal.SIGINT)
    assert process.wait(LONG_ENOUGH) == 0


def test_a_port_can_be_chosen_and_a_taken_one_is_told(det: Any, home: Path, master: Any) -> None:
    port = master.url.rpartition(":")[2]
    done = det("master", "up", "--port", port)
    assert done.returncode == 1
    assert "the master did not start" in done.stderr and "ddress already in use" in done.stderr
    assert f"port {port}" in done.stderr and "Traceback" not in done.stderr
    assert not master_file(home).get("url")


def test_a_damaged_site_configuration_is_told_with_its_line_and_no_master_started(det: Any, home: Path) -> None:
    home.mkdir()
    (home / "site.yaml").write_text("nonsense: [\n")
    done = det("experiment", "list")
    assert done.returncode == 1
    assert "site.yaml:2: YAML: " in done.stderr and "Traceback" not in done.stderr
    assert not (home / "log" / "master.log").exists()


def test_a_home_that_cannot_be_made_is_told(det: Any, home: Path) -> None:
    home.write_text("a file")
    for words in (["experiment", "list"], ["master", "up"]):
        done = det(*words)
        assert done.returncode == 1 and "Traceback" not in done.stderr
        assert f"the master did not start: {home}" in done.stderr and "Not a directory" in done.stderr


def test_a_log_that_is_a_directory_is_told_with_a_remedy(det: Any, home: Path) -> None:
    log = home / "log" / "master.log"
    log.mkdir(parents=True)
    done = det("experiment", "list")
    assert done.returncode == 1
    assert done.stderr.endswith(f"the master did not start: {log}: Is a directory. A file belongs there: rm -r {log}\n")
    log.rmdir()
    assert det("experiment", "list").returncode == 0


@pytest.mark.parametrize(
    "damage",
    [b"one\ntwo\n", pytest.param(None, marks=pytest.mark.everything)],
    ids=["two lines", "a directory"],
)
def test_a_damaged_token_is_told_with_the_way_out(det: Any, home: Path, damage: bytes | None) -> None:
    det("master", "up")
    token = home / "token"
    token.unlink()
    token.mkdir() if damage is None else token.write_bytes(damage)
    for _ in ("with a master", "without one"):
        done = det("experiment", "list")
        assert done.returncode == 1 and f"{token} is damaged: it holds no token. Remove it" in done.stderr
        assert "Traceback" not in done.stderr and "det master down" in done.stderr
        assert det("master", "down").returncode == 0
    subprocess.run(["rm", "-r", str(token)], check=True)
    assert det("experiment", "list").returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        ["experiment", "list"],
        pytest.param(["master", "info"], marks=pytest.mark.everything),
        pytest.param(["user", "whoami"], marks=pytest.mark.everything),
        pytest.param(["master", "down"], marks=pytest.mark.everything),
    ],
)
def test_where_warnings_are_errors_nothing_else_is_printed(
    environment: dict[str, str], home: Path, words: list[str]
) -> None:
    """Among them those of connections and processes that are left to the end of the command."""
    strict = {**environment, "PYTHONWARNINGS": "error"}
    for _ in ("starts a master", "finds it"):
        command = [sys.executable, "-m", "dethpc.cli", *words]
        done = subprocess.run(command, env=strict, capture_output=True, text=True, check=False)
        assert "Warning" not in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_a_full_disk_is_named(environment: dict[str, str], home: Path) -> None:
    home.mkdir()
    script = f"""
    mount -t tmpfs -o size=2m none {home} && echo mounted || exit 0
    head -c 2m /dev/zero > {home}/full
    {sys.executable} -m dethpc.cli experiment list
    """
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if "mounted" not in done.stdout:
        pytest.skip("no file system can be mounted here")
    assert (
        f"the master did not start; {home}: No space left on device (0 B left). A master needs 16.0 MiB" in done.stderr
    )
    assert "Traceback" not in done.stderr and "nothing was written" not in done.stderr


@pytest.mark.parametrize("cluster_id", ["another", "c-1"])
def test_somebody_elses_server_at_the_old_address_gets_no_token(
    det: Any, home: Path, master: Any, cluster_id: str
) -> None:
    home.mkdir()
    (home / "token").write_text("secret")
    held = {"url": master.url, "pid": 2**22 - 1, "host": "nowhere", "heartbeat": 0, "cluster_id": cluster_id}
    (home / "master.json").write_text(json.dumps(held))
    done = det("version")
    assert "does not run" in done.stdout
    assert master.asked and all("secret" not in str(seen) for seen in master.headers)


def test_the_log_can_be_read_with_and_without_a_master(det: Any, home: Path) -> None:
    det("master", "up")
    shown = det("master", "logs")
    assert shown.returncode == 0 and "listens at" in shown.stdout
    assert len(det("master", "logs", "--tail", 1).stdout.splitlines()) == 1
    det("master", "down")
    left = det("master", "logs")
    assert left.returncode == 0 and "listens at" in left.stdout and "no master is running" in left.stderr
    assert len(det("master", "logs", "--tail", 1).stdout.splitlines()) == 1


def test_info_and_config_name_the_cluster(det: Any, home: Path) -> None:
    info = json.loads(det("master", "info", "--json").stdout)
    config = json.loads(det("master", "config", "--json").stdout)
    assert info["clusterId"] == config["cluster_id"] == master_file(home)["cluster_id"]
    assert info["url"] in det("master", "info").stdout
    assert "cluster_id:" in det("master", "config").stdout


def test_info_tells_what_the_master_serves_where_it_runs_and_whose_files_it_uses(
    det: Any, environment: dict[str, str], home: Path, tmp_path: Path
) -> None:
    environment["DETHPC_SITE_CONFIG"] = str(tmp_path / "site.yaml")
    (tmp_path / "site.yaml").write_text("cluster_name: hill\n")
    told = dict(line.split(": ", 1) for line in det("master", "info").stdout.splitlines() if ": " in line)
    info, lease = json.loads(det("master", "info", "--json").stdout), master_file(home)
    assert (told["Address"].strip(), told["Process"].strip()) == (lease["url"], str(lease["pid"]))
    assert told["Scheduler"].strip() == f"the machine that it runs on, {lease['host']}, without Slurm"
    assert told["Host"].strip() == lease["host"] and told["Since"].strip().startswith("20")
    assert told["Home"].strip() == info["home"] == str(home)
    assert told["Site file"].strip() == str(tmp_path / "site.yaml")
    assert told["Cluster"].strip() == f"hill ({lease['cluster_id']})"
    assert told["Version"].strip() == f"{info['dethpcVersion']}, speaks the API of Determined {info['version']}"
    assert (info["url"], info["lease"]["pid"], "Trouble" in told) == (lease["url"], lease["pid"], False)


def test_rebuild_needs_the_master_down(det: Any) -> None:
    det("master", "up")
    done = det("master", "rebuild", "--yes")
    assert done.returncode == 1 and "det master down" in done.stderr


def test_over_tls_det_needs_no_option_and_other_programs_are_given_a_file(det: Any, home: Path) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "site.yaml").write_text("master: {tls: on}\n")
    shown = det("master", "certificate")
    assert shown.stdout.strip() == str(home / "master.pem"), shown.stderr
    url = master_file(home)["url"]
    assert url.startswith("https://") and det("experiment", "list").stderr == ""
    plain = det("-m", url.replace("https", "http"), "experiment", "list")
    assert (plain.returncode, "its address begins with https://" in plain.stderr) == (1, True)
    det("master", "down")
    (home / "site.yaml").write_text("master: {tls: off}\n")
    refused = det("master", "certificate")
    assert refused.returncode == 1 and "uses plain HTTP: there is no certificate" in refused.stderr


def test_at_ones_own_master_too_the_named_user_acts(det: Any, environment: dict[str, str], home: Path) -> None:
    password = "Correct-horse-1"
    assert det("user", "create", "grace", "--password", password).returncode == 0
    assert "log in first" in det("-u", "grace", "user", "whoami").stderr
    environment.update(DET_USER="grace", DET_PASS=password)
    assert "user 'grace'" in det("user", "whoami").stdout
    del environment["DET_USER"], environment["DET_PASS"]
    assert "user 'grace'" in det("-u", "grace", "user", "whoami").stdout
    assert f"user '{getpass.getuser()}'" in det("user", "whoami").stdout
    login = det("user", "login", "grace", input=f"{password}\n")
    assert "to act as that user: det -u grace" in login.stderr, login
