"""Templates: set, shown, renamed and removed, and what an experiment that names one is created with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dethpc.client.nouns import experiments, templates, workspaces
from dethpc.domain.records import Template
from dethpc.errors import ConfigError, NotFound, Refused
from dethpc.master.rebuild import recreate
from dethpc.state import open_store
from dethpc.state.queries import records as stored
from tests.master.conftest import Published, Served
from tests.master.http.test_control import YAML

SHARED = {
    "max_restarts": 2,
    "labels": ["team"],
    "bind_mounts": [{"host_path": "/data", "container_path": "/data"}],
    "searcher": {"metric": "accuracy", "smaller_is_better": False},
}
OWN = "name: mine\nentrypoint: python3 train.py\nsearcher: {name: single}\nlabels: [own]\n"


def created(served: Served, text: str = OWN, **options: Any) -> dict[str, Any]:
    return experiments.create(served.session, text, [], activate=False, **options)["experiment"]


def test_they_are_set_listed_renamed_and_removed(served: Served) -> None:
    assert templates.templates(served.session) == []
    row = templates.put(served.session, "usual", SHARED)
    assert row == {"name": "usual", "config": SHARED, "workspaceId": 1} == templates.get(served.session, "usual")
    templates.put(served.session, "usual", {"max_restarts": 1})
    assert templates.get(served.session, "usual")["config"] == {"max_restarts": 1}
    templates.change(served.session, "usual", {"max_restarts": 0})
    vision = workspaces.create_workspace(served.session, "Vision")["id"]
    templates.create(served.session, "Later", SHARED, vision)
    for name, answer in (("Later", {}), ("usual", {})):
        with pytest.raises(Refused, match=f"template '{name}' already exists") as refusal:
            templates.create(served.session, name, answer)
        assert refusal.value.status_code == 409  # type: ignore[attr-defined]
    with pytest.raises(Refused, match=r"it has templates \(Later\)"):
        workspaces.delete_workspace(served.session, vision)
    names = [row["name"] for row in templates.templates(served.session, orderBy="ORDER_BY_DESC")]
    assert names == ["usual", "Later"]
    assert [row["name"] for row in templates.templates(served.session, workspaceIds=[vision])] == ["Later"]
    assert [row["name"] for row in templates.templates(served.session, name="USU")] == ["usual"]
    assert templates.rename(served.session, "usual", "common")["config"] == {"max_restarts": 0}
    with pytest.raises(Refused, match="template 'Later' already exists"):
        templates.rename(served.session, "common", "Later")
    with pytest.raises(Refused, match="is no name for a template"):
        templates.rename(served.session, "common", "a/b")
    nameless = "a template needs a name"
    slashed = "is no name for a template"
    for no_name, reason in (("", nameless), (" ", nameless), ("a/b", slashed), ("..", "cannot be")):
        for give in (templates.create, templates.put, templates.change):
            with pytest.raises(Refused, match=reason):
                give(served.session, no_name, SHARED)
        for act in (templates.get, templates.remove):
            with pytest.raises(Refused, match=reason):
                act(served.session, no_name)
    for gone in ("usual", "a b"):
        for act in (templates.get, templates.remove):
            with pytest.raises(NotFound, match=f"template '{gone}' not found; .*common|Later"):
                act(served.session, gone)
    with pytest.raises(NotFound):
        templates.change(served.session, "usual", {})
    with pytest.raises(NotFound, match="workspace 99"):
        templates.create(served.session, "nowhere", {}, 99)
    templates.remove(served.session, "Later")
    workspaces.delete_workspace(served.session, vision)
    assert [row["name"] for row in templates.templates(served.session)] == ["common"]


def test_an_experiment_is_laid_over_the_template_that_it_names(served: Served) -> None:
    templates.put(served.session, "usual", SHARED)
    under_template = created(served, template="usual")
    config = under_template["config"]
    assert (config["max_restarts"], config["labels"], config["name"]) == (2, ["own", "team"], "mine")
    assert config["searcher"]["name"] == "single" and config["searcher"]["smaller_is_better"] is False
    assert config["bind_mounts"][0]["container_path"] == "/data"
    assert experiments.get(served.session, under_template["id"])["experiment"]["originalConfig"] == OWN, (
        "what the user wrote"
    )
    templates.remove(served.session, "usual")
    fork = created(served, f"{YAML}\n", parent=under_template["id"])
    assert fork["config"]["max_restarts"] != 2, "a fork is what its own text says"
    with pytest.raises(NotFound, match="template 'usal' not found; there is none"):
        created(served, template="usal")
    templates.put(served.session, "usual", SHARED)
    with pytest.raises(NotFound, match="did you mean 'usual'"):
        created(served, template="usal")


def test_tasks_and_experiments_share_a_template(served: Served) -> None:
    vision = workspaces.create_workspace(served.session, "Vision")["id"]
    shared = {"resources": {"slots": 2}, "environment": {"environment_variables": ["SHARED=1"]}}
    templates.create(served.session, "shared", shared, vision)
    templates.put(served.session, "idle", {"idle_timeout": "20m", "resources": {"slots": 0}})
    body = {"config": {"entrypoint": "true"}, "templateName": "shared", "workspaceId": vision}
    answer = served.session.post("/api/v1/commands", body)
    assert answer["config"]["resources"]["slots"] == 2 == answer["command"]["slots"]
    assert "SHARED=1" in str(answer["config"]["environment"]) and answer["command"]["workspaceId"] == vision
    own = {"config": {"resources": {"slots": 1}}, "templateName": "idle"}
    config = served.session.post("/api/v1/notebooks", own)["config"]
    assert (config["resources"]["slots"], config["idle_timeout"]) == (1, "20m"), "its own counts"
    answer = experiments.create(served.session, OWN.replace("single", "single, metric: a"), [], template="shared")
    assert answer["experiment"]["config"]["resources"]["slots_per_trial"] == 1
    assert any("resources.slots of template 'shared' is for tasks" in note for note in answer["notes"]), answer
    with pytest.raises(ConfigError, match="template idle: idle_timeout"):
        created(served, OWN.replace("single", "single, metric: a"), template="idle")


def test_what_a_template_brings_to_a_task_is_told_as_its_own_and_may_be_the_entrypoint(served: Served) -> None:
    templates.put(served.session, "nap", {"entrypoint": "sleep 1", "resources": {"slots": 0}})
    templates.put(served.session, "lost", {"resources": {"resource_pool": "nowhere"}})
    assert (
        served.session.post("/api/v1/commands", {"config": {}, "templateName": "nap"})["config"]["entrypoint"]
        == "sleep 1"
    )
    with pytest.raises(ConfigError, match="^template lost: resources.resource_pool"):
        served.session.post("/api/v1/commands", {"config": {"entrypoint": "true"}, "templateName": "lost"})
    own = {"entrypoint": "true", "resources": {"slots": -1, "resource_pool": "default"}}
    with pytest.raises(ConfigError, match="^(config: )?resources.slots"):
        served.session.post("/api/v1/commands", {"config": own, "templateName": "lost"})
    with pytest.raises(ConfigError, match="^(config: )?entrypoint"):
        served.session.post("/api/v1/commands", {"config": {}, "templateName": "lost"})


def test_an_unmanaged_experiment_has_the_fields_of_its_template_too(served: Served) -> None:
    templates.put(served.session, "usual", SHARED)
    body = {"config": "name: mine\n", "template": "usual", "unmanaged": True}
    for answer in (
        served.session.post("/api/v1/experiments", body),
        served.session.put("/api/v1/experiments/by-external-id/e", body),
    ):
        assert (answer["config"]["labels"], answer["config"]["name"]) == (["team"], "mine")


def test_a_template_names_the_project_and_its_mistakes_are_told_as_its_own(served: Served) -> None:
    vision = workspaces.create_workspace(served.session, "Vision")
    workspaces.create_project(served.session, vision["id"], "Digits")
    templates.put(served.session, "place", {**SHARED, "workspace": "Vision", "project": "Digits"})
    assert created(served, template="place")["projectName"] == "Digits"
    templates.put(served.session, "pool", {"resources": {"resource_pool": "nope"}})
    text = OWN.replace("searcher:", "max_restarts: -1\nsearcher:")
    with pytest.raises(ConfigError) as refusal:
        created(served, text, template="pool")
    places = {problem.field: (problem.file, problem.line) for problem in refusal.value.problems}
    assert places["max_restarts"] == ("config", 3) and places["searcher.metric"] == ("config", 4)
    with pytest.raises(ConfigError) as refusal:
        created(served, OWN.replace("name: single", "name: single, metric: a"), template="pool")
    (problem,) = refusal.value.problems
    assert (problem.field, problem.file, problem.line) == ("resources.resource_pool", "template pool", None)


def test_a_secret_that_is_shown_masked_stays_when_the_template_is_set_again(served: Served) -> None:
    storage = {"type": "s3", "bucket": "b", "access_key": "AK", "secret_key": "hunter2"}
    shown = templates.put(served.session, "store", {"checkpoint_storage": storage})["config"]
    assert "hunter2" not in str(shown)
    templates.change(served.session, "store", {**shown, "max_restarts": 1})
    row = served.daemon.services.records.get(Template, "store")
    assert row.config == {"checkpoint_storage": storage, "max_restarts": 1}
    with pytest.raises(ConfigError):
        templates.put(served.session, "another", shown)


def test_a_rebuild_brings_them_back(served: Served, tmp_path: Path) -> None:
    templates.put(served.session, "usual", SHARED)
    templates.put(served.session, "gone", {})
    templates.rename(served.session, "usual", "common")
    templates.remove(served.session, "gone")
    services = served.daemon.services
    with open_store(tmp_path / "again.db") as again:
        recreate(services.installation.home, again)
        with again.read() as connection:
            assert stored.find(connection, Template) == [Template("common", SHARED, 1)]


def test_the_published_client_works_with_them(published: Published, served: Served, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("max_restarts: 2\nbind_mounts:\n- {host_path: /data, container_path: /data}\n")
    (tmp_path / "u.yaml").write_text("max_restarts: 4\n")
    (tmp_path / "bad.yaml").write_text("max_restart: 4\n")
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("")
    (tmp_path / "config.yaml").write_text(YAML)
    assert "Set template usual" in published.det("template", "set", "usual", f"{tmp_path}/t.yaml")
    assert "container_path: /data" in published.det("template", "describe", "usual")
    assert "usual" in published.det("template", "list") and "max_restarts" in published.det("template", "list", "-d")
    published.det("workspace", "create", "Vision")
    published.det("template", "create", "sight", f"{tmp_path}/t.yaml", "--workspace-name", "Vision")
    assert "Vision" in published.det("tpl", "ls")
    published.det("template", "create", "sight", f"{tmp_path}/t.yaml", code=1)
    published.det("template", "set", "bad", f"{tmp_path}/bad.yaml", code=1)
    assert "max_restart" in published.errors
    published.det("template", "set-value", "config", "sight", f"{tmp_path}/u.yaml")
    published.det("template", "set", "usual", f"{tmp_path}/u.yaml")
    arguments = ("experiment", "create", f"{tmp_path}/config.yaml", str(code), "--paused", "--template")
    published.det(*arguments, "usual")
    assert experiments.get(served.session, 1)["config"]["max_restarts"] == 4
    published.det(*arguments, "nothing", code=1)
    assert "sight" in published.errors
    published.det("template", "remove", "usual")
    published.det("template", "rm", "sight")
    published.det("template", "describe", "usual", code=1)
    got = published.python(
        "body = bindings.v1Template(name='a', config={'debug': False}, workspaceId=1)\n"
        "bindings.put_PutTemplate(sess, body=body, template_name='a')\n"
        "renaming = bindings.v1PatchTemplateNameRequest(oldName='a', newName='b')\n"
        "bindings.patch_PatchTemplateName(sess, body=renaming)\n"
        "client.login()\n"
        f"e = client.create_experiment({str(tmp_path / 'config.yaml')!r}, {str(code)!r}, template='b')\n"
        "e.pause()\n"
        "print(json.dumps([t.name for t in bindings.get_GetTemplates(sess, name='b').templates]))"
    )
    assert got == ["b"]
