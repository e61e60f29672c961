"""The model registry: models, versions, and what is registered stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dethpc.client.nouns import checkpoints, models, workspaces
from dethpc.domain.facts import Checkpoint
from dethpc.domain.records import Model, ModelVersion
from dethpc.domain.states import CheckpointState
from dethpc.errors import NotFound, Refused
from dethpc.master.rebuild import recreate
from dethpc.state import open_store
from dethpc.state.queries import records as stored
from tests.master.conftest import Published, Served, experiment, trained, trial, uuid_of


@pytest.fixture
def uuids(served: Served) -> list[str]:
    """Of the checkpoints of an experiment that has ended."""
    rows = [experiment(1, owner=served.owner), *trained(trial(1))]
    served.put(rows)
    return [row.uuid for row in rows if isinstance(row, Checkpoint)]


def test_a_checkpoint_becomes_a_version_whose_number_is_given_once(served: Served, uuids: list[str]) -> None:
    model = models.create(served.session, "digits", description="by hand", labels=["a", "b"], metadata={"k": [1]})
    assert (model["name"], model["description"], model["labels"], model["metadata"], model["numVersions"]) == (
        "digits",
        "by hand",
        ["a", "b"],
        {"k": [1]},
        0,
    )
    first = models.register(served.session, "digits", uuids[0], comment="first")
    assert (first["version"], first["checkpoint"]["uuid"], first["comment"]) == (1, uuids[0], "first")
    assert models.register(served.session, model["id"], uuids[1])["version"] == 2
    models.delete_version(served.session, "digits", 2)
    assert models.register(served.session, "digits", uuids[1])["version"] == 3
    assert [row["version"] for row in models.versions(served.session, "digits")] == [3, 1]
    ascending = models.versions(served.session, "digits", orderBy="ORDER_BY_ASC", limit=1)
    assert [row["version"] for row in ascending] == [1]
    assert models.model(served.session, "digits")["numVersions"] == 2
    with pytest.raises(NotFound, match="model digits has no version 2"):
        models.version(served.session, "digits", 2)


def test_what_is_registered_is_not_deleted_until_it_is_no_longer(served: Served, uuids: list[str]) -> None:
    models.create(served.session, "digits")
    models.register(served.session, "digits", uuids[0])
    with pytest.raises(Refused, match="version 1 of model digits"):
        served.session.delete("/api/v1/experiments/1")
    models.change(served.session, "digits", name="numbers")
    with pytest.raises(Refused, match="version 1 of model numbers"):
        served.session.delete("/api/v1/experiments/1")
    models.delete(served.session, "numbers")
    served.session.delete("/api/v1/experiments/1")
    with pytest.raises(NotFound):
        models.model(served.session, "numbers")


@pytest.mark.parametrize("state", [CheckpointState.ERROR, CheckpointState.DELETED, CheckpointState.PARTIALLY_DELETED])
def test_only_a_whole_checkpoint_is_registered(served: Served, uuids: list[str], state: CheckpointState) -> None:
    models.create(served.session, "digits")
    with served.daemon.services.store.read() as connection:
        from dethpc.state.queries import checkpoint

        fact = checkpoint(connection, uuids[0])
    served.put([replace(fact, state=state)])
    with pytest.raises(Refused, match=f"is {state.value}: only one that is COMPLETED"):
        models.register(served.session, "digits", uuids[0])
    with pytest.raises(NotFound):
        models.register(served.session, "digits", "no-such-checkpoint")
    assert models.model(served.session, "digits")["numVersions"] == 0


def test_names_are_unique_and_no_ids(served: Served) -> None:
    models.create(served.session, "a model: of 3 (words)")
    assert models.model(served.session, "a model: of 3 (words)")["id"] == 1
    with pytest.raises(Refused, match="already") as refusal:
        models.create(served.session, "a model: of 3 (words)")
    assert refusal.value.status_code == 409  # type: ignore[attr-defined]
    with pytest.raises(Refused, match="differ in more than case"):
        models.create(served.session, "A MODEL: of 3 (words)")
    with pytest.raises(NotFound, match=r"model a modle not found \(there are: a model: of 3 \(words\)\)"):
        models.model(served.session, "a modle")
    for name, message in (
        ("", "needs a name"),
        ("12", "cannot be a number"),
        ("a/b", "slash"),
        ("a\\b", "slash"),
        ("a  b", "two blanks"),
    ):
        with pytest.raises(Refused, match=message):
            models.create(served.session, name)
    models.delete(served.session, 1)
    assert models.create(served.session, "a model: of 3 (words)")["id"] == 2


def test_an_archived_model_changes_no_more(served: Served, uuids: list[str]) -> None:
    models.create(served.session, "digits")
    models.act(served.session, "digits", "archive")
    for act in (
        lambda: models.register(served.session, "digits", uuids[0]),
        lambda: models.change(served.session, "digits", description="x"),
    ):
        with pytest.raises(Refused, match="archived"):
            act()
    assert models.models(served.session, archived=False) == []
    models.act(served.session, "digits", "unarchive")
    models.register(served.session, "digits", uuids[1])
    models.act(served.session, "digits", "archive")
    models.change_version(served.session, "digits", 1, notes="of an archived model")
    assert models.version(served.session, "digits", 1)["notes"] == "of an archived model"
    models.act(served.session, "digits", "unarchive")
    models.register(served.session, "digits", uuids[0])


def test_lists_are_filtered_sorted_and_cut(served: Served, uuids: list[str]) -> None:
    space = workspaces.create_workspace(served.session, "Vision")
    for name, labels in (("b", ["x"]), ("A", ["x", "y"]), ("c", [])):
        models.create(served.session, name, labels=labels, workspaceId=space["id"] if name == "c" else None)
    models.register(served.session, "b", uuids[0])

    def names(**params: Any) -> list[str]:
        return [row["name"] for row in models.models(served.session, **params)]

    assert names(sortBy="SORT_BY_NAME") == ["A", "b", "c"]
    assert names(sortBy="SORT_BY_NUM_VERSIONS", orderBy="ORDER_BY_DESC", limit=1) == ["b"]
    assert names(labels=["x", "y"]) == ["A"] and names(name="a") == ["A"] and names(id=3) == ["c"]
    assert names(workspaceNames=["Vision"]) == names(workspaceIds=[space["id"]]) == ["c"]
    assert names(workspaceNames=["Nowhere"]) == []
    assert models.labels(served.session) == ["x", "y"]
    served.session.post(f"{models.path('A')}/move", {"destinationWorkspaceId": space["id"]})
    assert sorted(names(workspaceNames=["Vision"])) == ["A", "c"]
    with pytest.raises(Refused, match="cannot sort by colour"):
        names(sortBy="SORT_BY_COLOUR")


def test_a_rebuild_brings_them_back(served: Served, uuids: list[str], tmp_path: Any) -> None:
    models.create(served.session, "digits", metadata={"k": 1})
    models.register(served.session, "digits", uuids[0], labels=["best"], metadata={"a": [1.5]})
    services = served.daemon.services
    kinds = (Model, ModelVersion)
    with services.store.read() as connection:
        before = [stored.find(connection, kind) for kind in kinds]
    with open_store(tmp_path / "again.db") as again:
        recreate(services.installation.home, again)
        with again.read() as connection:
            assert [stored.find(connection, kind) for kind in kinds] == before
    assert before[1][0].labels == ["best"]


def test_the_published_client_works_with_them(published: Published, served: Served, uuids: list[str]) -> None:
    published.det("model", "create", "digits", "--description", "numbers")
    assert uuids[0] in published.det("model", "register-version", "digits", uuids[0])
    assert "digits" in published.det("model", "list") and uuids[0] in published.det("model", "describe", "digits")
    assert uuids[0] in published.det("model", "list-versions", "digits", "--json")
    published.det("workspace", "create", "Vision")
    published.det("model", "move", "digits", "-w", "Vision")
    got = published.python(
        "from determined.experimental import client\n"
        "m = client.get_model('digits')\n"
        "m.add_metadata({'a': 1, 'b': 2}); m.remove_metadata(['a']); m.set_labels(['x']); m.set_description('d')\n"
        f"v = m.register_version({uuids[1]!r}); v.set_name('best'); v.set_notes('n'); v.reload()\n"
        "again = client.get_model(m.model_id)\n"
        "other = client.create_model('other', 'o', {'k': 1}); other.archive(); other.unarchive(); other.delete()\n"
        "latest = again.get_version()\n"
        "print(json.dumps([again.metadata, again.labels, again.description, latest.model_version, latest.name,"
        " latest.notes, latest.checkpoint.uuid, [x.model_version for x in again.list_versions()],"
        " [x.name for x in client.list_models()], client.get_model_labels(), again.workspace_id]))\n"
        "latest.delete()"
    )
    assert got == [{"b": 2}, ["x"], "d", 2, "best", "n", uuids[1], [2, 1], ["digits"], ["x"], 2]
    published.det("model", "delete", "digits")
    assert "digits" not in published.det("model", "list")
    assert checkpoints.get(served.session, uuids[0])["uuid"] == uuids[0]
    assert uuid_of(1, 1) != uuids[0]
