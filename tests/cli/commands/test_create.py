"""``det experiment create``: what is checked, what is sent, what is refused."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dethpc.config.source import read
from tests.waiting import LONG_ENOUGH

CONFIG = """\
name: digits
entrypoint: python3 train.py
searcher: {name: single, metric: loss}
hyperparameters: {lr: 1e-3}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(CONFIG)
    code = tmp_path / "code"
    (code / "inner").mkdir(parents=True)
    (code / "train.py").write_text("print('hello')\n")
    (code / "inner" / "model.py").write_text("")
    (code / "data.bin").write_text("large")
    (code / ".detignore").write_text("*.bin\n")
    (tmp_path / "extra.txt").write_text("extra")
    return tmp_path


def sent(master: Any) -> dict[str, Any]:
    [(path, body)] = master.did("POST")
    assert path == "/api/v1/experiments"
    found: dict[str, Any] = body
    return found


def test_the_config_is_sent_as_written_with_the_files_of_the_folder(det: Any, master: Any, folder: Path) -> None:
    done = det("experiment", "create", "config.yaml", "code", "-i", "extra.txt", master=master)
    assert (done.returncode, done.stdout) == (0, "Created experiment 7\n"), done.stderr
    body = sent(master)
    assert body["config"] == CONFIG and body["activate"] is True
    files = {file["path"].rstrip("/"): file for file in body["modelDefinition"]}
    assert {"train.py", "inner", "inner/model.py", "extra.txt"} <= set(files) and "data.bin" not in files
    assert base64.b64decode(files["train.py"]["content"]) == b"print('hello')\n"


def test_overrides_are_merged_and_keep_every_type(det: Any, master: Any, folder: Path) -> None:
    words = ["--config", "resources.slots_per_trial=2", "--config", 'name="07"', "--config", "hyperparameters.lr=1e-4"]
    done = det("experiment", "create", "config.yaml", "code", "--paused", *words, "--project_id", 1, master=master)
    assert done.returncode == 0, done.stderr
    config = read(sent(master)["config"], "sent")[0].data
    assert config["resources"] == {"slots_per_trial": 2} and config["name"] == "07"
    assert config["hyperparameters"] == {"lr": 1e-4}
    assert sent(master)["activate"] is False and sent(master)["projectId"] == 1


def test_a_home_in_the_folder_stays_there_and_a_note_says_so(det: Any, master: Any, folder: Path) -> None:
    (folder / "code" / "state").mkdir()
    for name in ("token", "cluster.json"):
        (folder / "code" / "state" / name).write_text("{}")
    done = det("experiment", "create", "config.yaml", "code", master=master)
    assert "note: not sent: state, a home of dethpc's" in done.stderr
    assert not [file["path"] for file in sent(master)["modelDefinition"] if "state" in file["path"]]


def test_what_to_do_next_and_what_was_not_sent_is_told_beside_the_answer(det: Any, master: Any, folder: Path) -> None:
    (folder / "code" / "wandb").mkdir()
    done = det("experiment", "create", "config.yaml", "code", master=master)
    assert done.stdout == "Created experiment 7\n"
    assert "not sent: wandb" in done.stderr and "!wandb in .detignore" in done.stderr
    assert "det experiment wait 7" in done.stderr and "det experiment logs 7" in done.stderr
    done = det("experiment", "create", "config.yaml", "code", "--paused", master=master)
    assert "det experiment activate 7" in done.stderr
    (folder / "code" / "data.npy").write_bytes(bytes(5 << 20))
    done = det("experiment", "create", "config.yaml", "code", "--json", master=master)
    assert "sending 5.0 MiB in 4 files" in done.stderr and "next:" not in done.stderr


def test_a_terminal_shows_how_much_of_a_large_context_is_sent(
    environment: dict[str, str], master: Any, folder: Path
) -> None:
    (folder / "code" / "data.npy").write_bytes(bytes(5 << 20))
    words = [sys.executable, "-m", "dethpc.cli", "-m", master.url, "experiment", "create", "config.yaml", "code"]
    primary, secondary = pty.openpty()
    env = {**environment, "TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(words, cwd=folder, stdin=secondary, stdout=secondary, stderr=secondary, env=env)
    os.close(secondary)
    shown = b""
    with contextlib.suppress(OSError):  # which ends what a terminal shows
        while data := os.read(primary, 65536):
            shown += data
    os.close(primary)
    assert process.wait(LONG_ENOUGH) == 0 and b"Created experiment 7" in shown
    assert b"sent; the master packs it" in shown and b"100%" in shown


def test_the_project_is_sent_as_the_user_names_it(det: Any, master: Any, folder: Path) -> None:
    det("experiment", "create", "config.yaml", "code", "--project", 7, master=master)
    assert master.did("POST")[0][1]["projectId"] == 7


def test_every_mistake_is_a_line_and_nothing_is_created(det: Any, master: Any, folder: Path) -> None:
    (folder / "config.yaml").write_text(
        "entrypoint: x\nsearcher: {name: sngle, metric: loss}\nresources:\n  slots_per_trail: 2\n"
    )
    done = det("experiment", "create", "config.yaml", "code", master=master)
    assert done.returncode == 1 and done.stdout == "" and len(master.did("POST")) == 1, "the master refuses it"
    lines = done.stderr.splitlines()
    assert len(lines) == 2 and all(line.startswith("det: error: config.yaml:") for line in lines)
    assert "config.yaml:2: searcher" in lines[0] and "sngle" in lines[0]
    assert "config.yaml:4: resources.slots_per_trail" in lines[1] and "slots_per_trial" in lines[1]


def test_a_large_context_is_not_sent_for_a_configuration_that_is_wrong(det: Any, master: Any, folder: Path) -> None:
    (folder / "config.yaml").write_text("entrypoint: x\nsearcher: {name: sngle, metric: loss}\n")
    (folder / "code" / "data.npy").write_bytes(bytes(5 << 20))
    done = det("experiment", "create", "config.yaml", "code", master=master)
    assert done.returncode == 1 and "config.yaml:2: searcher" in done.stderr and master.asked == []


def test_what_is_older_or_doubtful_in_a_configuration_is_told_with_its_line(
    det: Any, master: Any, folder: Path
) -> None:
    (folder / "config.yaml").write_text(CONFIG.replace("single,", "single, max_steps: 3,"))
    done = det("experiment", "create", "config.yaml", "code", master=master)
    assert (done.returncode, done.stdout, len(master.did("POST"))) == (0, "Created experiment 7\n", 1), done.stderr
    assert "det: older form: config.yaml:3: " in done.stderr and "det config upgrade config.yaml" in done.stderr


def test_a_usual_creation_loads_no_models_of_configurations(
    environment: dict[str, str], master: Any, folder: Path
) -> None:
    code = (
        "import sys\nfrom dethpc.cli import main\n"
        "try: main(['experiment', 'create', 'config.yaml', 'code'])\nexcept SystemExit as end: assert not end.code, end.code\n"
        "print('LOADED', [name for name in ('pydantic', 'difflib', 'dethpc.config.loading') if name in sys.modules])"
    )
    env = {**environment, "DET_MASTER": master.url}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=folder, check=True)
    assert done.stdout.splitlines() == ["Created experiment 7", "LOADED []"]


def test_mistakes_that_the_master_finds_are_told_with_their_lines(det: Any, master: Any, folder: Path) -> None:
    (folder / "config.yaml").write_text(
        "entrypoint: x\nsearcher: {name: single, metric: loss}\nresources:\n  resource_pool: nope\n"
    )
    problems = [
        {"field": "resources.resource_pool", "found": "'nope'", "allowed": "one of main"},
        {"field": "slurm.sbatch_args", "message": "-J is not possible here"},
    ]
    master.refuse = (400, {"error": {"code": 3, "error": "wrong", "problems": problems}})
    overrides = ["--config", "slurm.sbatch_args=[-J x]"]
    for command in ("create", "render"):
        done = det("experiment", command, "config.yaml", "code", *overrides, master=master)
        first, second = done.stderr.splitlines()
        assert done.returncode == 1 and first.startswith(
            "det: error: config.yaml:4: resources.resource_pool: 'nope' is not one of main"
        )
        assert second.startswith("det: error: --config slurm.sbatch_args: -J is not possible here")


def test_a_config_that_is_no_text_is_a_mistake_like_others(det: Any, master: Any, folder: Path) -> None:
    (folder / "config.yaml").write_bytes(b"name: \xb1\n")
    for command in (["experiment", "create"], ["preview-search"], ["simulate"], ["config", "upgrade"]):
        done = det(*command, "config.yaml", master=master)
        assert done.returncode == 1 and master.asked == []
        assert done.stderr == ("det: error: config.yaml: YAML: the file is not text in UTF-8: it holds the byte 0xb1\n")


def test_the_config_may_come_from_standard_input(det: Any, master: Any, folder: Path) -> None:
    done = det("experiment", "create", "-", "code", "--json", master=master, input=CONFIG)
    assert json.loads(done.stdout)["experiment"]["id"] == 7


def test_a_template_is_sent_by_name_and_what_it_may_hold_is_not_missed(det: Any, master: Any, folder: Path) -> None:
    (folder / "config.yaml").write_text("name: digits\n")
    master.refuse = (400, {"error": {"code": 3, "error": "x", "reason": "InvalidArgument", "problems": PROBLEMS}})
    options = ("code", "--template", "usual", "--config", "max_restarts=-1")
    done = det("experiment", "create", "config.yaml", *options, master=master)
    ((_, body),) = master.did("POST")
    assert body["template"] == "usual" and body["config"] == "name: digits\nmax_restarts: -1\n"
    assert done.returncode == 1 and done.stderr.splitlines() == [
        "det: error: --config max_restarts: must be a number >= 0, not -1",
        "det: error: config.yaml:1: name: wrong",
        "det: error: template usual: resources.resource_pool: wrong",
    ]
    done = det("experiment", "create", "config.yaml", "code", "--template", "x", "--local", "--test", master=master)
    assert done.returncode == 2 and "--template is not possible with --local" in done.stderr


PROBLEMS = [
    {"field": field, "message": message, "file": file, "line": line}
    for field, message, file, line in [
        ("max_restarts", "must be a number >= 0, not -1", "config", 2),
        ("name", "wrong", "config", 1),
        ("resources.resource_pool", "wrong", "template usual", None),
    ]
]


def test_a_context_that_is_too_large_is_refused_with_its_largest_files(det: Any, master: Any, folder: Path) -> None:
    with open(folder / "code" / "huge.dat", "wb") as file:
        file.truncate(96 * 2**20)
    done = det("experiment", "create", "config.yaml", "code", master=master)
    assert done.returncode == 1 and "huge.dat" in done.stderr and master.asked == []


@pytest.mark.parametrize(
    "words", [["missing.yaml", "code"], ["config.yaml", "missing"], ["config.yaml", "code", "-f", "--paused"]]
)
def test_a_wrong_command_line_is_told_before_anything_else(
    det: Any, master: Any, folder: Path, words: list[str]
) -> None:
    done = det("experiment", "create", *words, master=master)
    assert done.returncode == 2 and master.asked == []


@pytest.mark.parametrize(
    "entrypoint",
    ["modle_def:Trial", "python3 -m determined.launch.torch_distributed --trial modle_def:Trial", "pkg.missing:Trial"],
)
def test_a_trial_class_whose_module_is_not_sent_along_is_told_before_anything_is_sent(
    det: Any, master: Any, folder: Path, entrypoint: str
) -> None:
    (folder / "code" / "model_def.py").write_text("class Trial: ...\n")
    (folder / "code" / "pkg").mkdir()
    (folder / "code" / "pkg" / "inner.py").write_text("class Trial: ...\n")
    (folder / "config.yaml").write_text(CONFIG.replace("python3 train.py", entrypoint))
    done = det("experiment", "create", "config.yaml", "code", master=master)
    assert (done.returncode, master.asked) == (1, []), done.stderr
    assert "pkg/missing.py is not in code" in done.stderr or "did you mean 'model_def.py'?" in done.stderr
    for right in ("model_def:Trial", "pkg.inner:Trial", "json.decoder:JSONDecoder"):  # the last one is installed
        (folder / "config.yaml").write_text(CONFIG.replace("python3 train.py", right))
        done = det("experiment", "create", "config.yaml", "code", master=master)
        assert done.returncode == 0, done.stderr


def test_a_class_that_its_module_cannot_have_is_told_before_anything_is_sent(
    det: Any, master: Any, folder: Path
) -> None:
    module = folder / "code" / "model_def.py"
    module.write_text(
        "from inner.model import Other\nBuilt = type('Built', (), {})\nclass MnistTrial:\n    class Inner: ...\n"
    )
    for name in ("MnistTrail", "Trial"):
        (folder / "config.yaml").write_text(CONFIG.replace("python3 train.py", f"model_def:{name}"))
        done = det("experiment", "create", "config.yaml", "code", master=master)
        assert (done.returncode, master.asked) == (1, []), done.stderr
        assert f"config.yaml:2: entrypoint: there is no {name} in model_def.py, only " in done.stderr
        assert "MnistTrial" in done.stderr
    for right in ("MnistTrial", "MnistTrial.Inner", "Other", "Built"):
        (folder / "config.yaml").write_text(CONFIG.replace("python3 train.py", f"model_def:{right}"))
        assert det("experiment", "create", "config.yaml", "code", master=master).returncode == 0
    for text in ("from inner.model import *\n", "def __getattr__(name): ...\n", "what is (no Python\n"):
        module.write_text(text)
        (folder / "config.yaml").write_text(CONFIG.replace("python3 train.py", "model_def:Anything"))
        assert det("experiment", "create", "config.yaml", "code", master=master).returncode == 0


def test_a_variable_that_nobody_sets_is_told_with_what_to_write_instead(det: Any, master: Any, folder: Path) -> None:
    typed = "python3 train.py --lr $LR --data $DATA_DIR --out $OUT --home $HOME"
    text = CONFIG.replace("python3 train.py", typed) + "environment: {environment_variables: [OUT=/tmp]}\n"
    (folder / "config.yaml").write_text(text)
    for more in ((), ("--config", "name=other")):  # checked here, or by the master
        done = det("experiment", "create", "config.yaml", "code", *more, master=master)
        assert done.returncode == 0
        told = [line for line in done.stderr.splitlines() if "is not set" in line]
        assert told == [
            "det: warning: entrypoint: $LR is not set, so nothing will stand there; for the hyperparameter write {lr}",
            "det: warning: entrypoint: $DATA_DIR is not set, so nothing will stand there; set it in "
            "environment.environment_variables (DATA_DIR=VALUE)",
        ]
    (folder / "code" / "startup-hook.sh").write_text("export LR=1\n")
    done = det("experiment", "create", "config.yaml", "code", master=master)
    assert "is not set" not in done.stderr, "the hook may set them"


def test_a_script_that_is_not_sent_along_is_told_before_anything_is_sent(det: Any, master: Any, folder: Path) -> None:
    (folder / "config.yaml").write_text(CONFIG.replace("train.py", "trian.py"))
    for more in ((), ("--local", "--test-mode")):
        done = det("experiment", "create", "config.yaml", "code", *more, master=master)
        assert (done.returncode, master.asked) == (1, [])
        assert "config.yaml:2: entrypoint: trian.py is not in" in done.stderr
        assert "did you mean 'train.py'?" in done.stderr
    (folder / "config.yaml").write_text(CONFIG.replace("train.py", "trian.py --lr {lr}"))
    done = det("experiment", "create", "config.yaml", "code", master=master)
    assert done.returncode == 1 and "did you mean 'train.py'?" in done.stderr, "braces hide nothing"
    (folder / "code" / "bin.yaml").write_text("")
    (folder / "code" / "data.py").write_text("")
    (folder / "config.yaml").write_text(CONFIG.replace("train.py", "main.py"))
    done = det("experiment", "create", "config.yaml", "code", master=master)
    assert done.returncode == 1 and "bin.yaml" not in done.stderr and "data.py" not in done.stderr, "these are not near"
    done = det("experiment", "create", "config.yaml", master=master)
    assert done.returncode == 1 and "name its directory, as in det experiment create CONFIG ." in done.stderr


def test_a_script_that_a_startup_hook_may_bring_is_taken(det: Any, master: Any, folder: Path) -> None:
    (folder / "config.yaml").write_text(CONFIG.replace("train.py", "fetched.py"))
    (folder / "code" / "startup-hook.sh").write_text("git clone https://example.org/code .\n")
    assert det("experiment", "create", "config.yaml", "code", master=master).returncode == 0


# --- what goes on from earlier work


def test_an_experiment_is_continued_with_what_is_changed_alone(det: Any, master: Any, folder: Path) -> None:
    (folder / "more.yaml").write_text("max_restarts: 3\n")
    words = ["--config-file", "more.yaml", "--config", "searcher.max_length.batches=20"]
    done = det("experiment", "continue", 1, *words, master=master)
    assert (done.returncode, done.stdout) == (0, "Continued experiment 1\n"), done.stderr
    [(path, body)] = master.did("POST")
    assert path == "/api/v1/experiments/continue" and body["id"] == 1
    changes = read(body["overrideConfig"], "sent")[0].data
    assert changes == {"max_restarts": 3, "searcher": {"max_length": {"batches": 20}}}


def test_a_trial_goes_on_as_an_experiment_of_its_own(det: Any, master: Any, folder: Path) -> None:
    halving = {"name": "async_halving", "metric": "acc", "smaller_is_better": False, "max_trials": 9, "num_rungs": 2}
    master.config = {
        "name": "digits",
        "entrypoint": "python3 train.py",
        "searcher": {**halving, "max_time": 64, "time_metric": "batches"},
        "hyperparameters": {"lr": {"type": "double", "minval": 0, "maxval": 1}},
        "environment": {"environment_variables": {"cpu": ["TOKEN=********"]}},
    }
    master.trials[1]["hparams"] = {"lr": 0.5, "net": {"type": "cnn", "depth": 2}, "more": {"width": 3}}
    done = det("trial", "continue", 2, "--config", "hyperparameters.lr=0.25", master=master)
    assert (done.returncode, done.stdout) == (0, "Created experiment 7\n"), done.stderr
    body = sent(master)
    assert body["parentId"] == 1 and body["modelDefinition"] == []
    config = read(body["config"], "sent")[0].data
    assert config["searcher"] == {
        **{"name": "single", "metric": "acc", "smaller_is_better": False},
        **{"max_length": {"batches": 64}, "source_trial_id": 2},
    }
    net = {"type": "const", "val": {"type": "cnn", "depth": 2}}
    assert config["hyperparameters"] == {"lr": 0.25, "net": net, "more": {"width": 3}}
    assert config["environment"] == master.config["environment"], "the master has the secrets"


def test_a_fork_starts_from_what_its_original_started_from_and_may_bring_its_own_files(
    det: Any, master: Any, folder: Path
) -> None:
    source = {"source_trial_id": 4, "source_checkpoint_uuid": "c-1"}
    master.config = {"entrypoint": "python3 train.py", "searcher": {"name": "single", "metric": "loss", **source}}
    done = det("experiment", "fork", 1, "code", "--paused", master=master)
    assert (done.returncode, done.stdout) == (0, "Created experiment 7\n"), done.stderr
    body = sent(master)
    assert (body["parentId"], body["activate"]) == (1, False)
    assert "train.py" in [file["path"] for file in body["modelDefinition"]]
    searcher = read(body["config"], "sent")[0].data["searcher"]
    assert searcher == {"name": "single", "metric": "loss", "source_checkpoint_uuid": "c-1"}


def test_a_fork_warns_of_what_changes_and_not_of_what_its_original_was_warned_of(
    det: Any, master: Any, folder: Path
) -> None:
    master.config = {
        "entrypoint": "python3 train.py",
        "searcher": {"name": "single", "metric": "loss"},
        "optimizations": {"aggregation_frequency": 1},
    }
    done = det("experiment", "fork", 1, master=master)
    assert "warning" not in done.stderr
    sent(master)
    done = det("experiment", "fork", 1, "--config", "min_validation_period.batches=8", master=master)
    (warning,) = [line for line in done.stderr.splitlines() if "warning" in line]
    assert "min_validation_period" in warning
