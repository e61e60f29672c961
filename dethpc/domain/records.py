"""Records: rows that no decision reads, so that the engine never meets them. One instance is one row.

Instances are treated as values, as facts are. Times are seconds since the epoch (UTC). To add a kind: a dataclass here with its
key, and whatever asks for it; its table, the change log and ``det master rebuild`` follow. To change one: a migration.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Union

from dethpc.domain.facts import SPARSE
from dethpc.domain.ids import OWNER_ID


@dataclass(slots=True)
class User:
    """Somebody who may log in to this master."""

    id: int
    username: str
    created_at: float
    modified_at: float
    display_name: str = ""
    password: str = ""  # argon2 of what clients send in the place of the password; "": no password is good
    admin: bool = True
    active: bool = True
    agent: dict[str, Any] | None = field(default=None, metadata=SPARSE)  # a linked Unix user and group; without effect


class TokenKind(str, Enum):
    """What a token was made for."""

    SESSION = "USER_SESSION"  # a login
    ACCESS = "ACCESS_TOKEN"  # a script that its user gave it to
    OWNER = "OWNER_TOKEN"  # the owner's token file, so that a new one is noticed
    PAGES = "PAGE_SESSION"  # a browser's login to the pages, which no request to the API can show


@dataclass(slots=True)
class Token:
    """A bearer token, by its digest: the token itself is in no file and no database."""

    id: int
    user_id: int
    kind: TokenKind
    sha256: str
    created_at: float
    expires_at: float | None = None  # None: never
    description: str = ""
    revoked: bool = False

    def good(self, at: float) -> bool:
        return not self.revoked and (self.expires_at is None or self.expires_at > at)


@dataclass(slots=True)
class Workspace:
    """A named group of projects, with defaults for their experiments."""

    id: int
    name: str
    user_id: int
    created_at: float
    archived: bool = False
    pool: str = ""  # of experiments that ask for slots and name no pool; "": the cluster's default
    aux_pool: str = ""  # of those that ask for no slots
    checkpoint_storage: dict[str, Any] | None = None  # of experiments that name none; None: the site's
    agent: dict[str, Any] | None = None  # a Unix user and group, as Determined's clients send them; without effect
    deleted: bool = False  # its id is given to no other


@dataclass(slots=True)
class WorkspacePin:
    """A workspace that a user has put at the head of their list."""

    user_id: int
    workspace_id: int
    created_at: float


@dataclass(slots=True)
class Project:
    """A named group of experiments. ``key`` is a short name that is unique on this master; ``notes`` have a name and contents."""

    id: int
    workspace_id: int
    name: str
    key: str
    user_id: int
    created_at: float
    description: str = ""
    archived: bool = False
    notes: list[dict[str, str]] = field(default_factory=list)
    deleted: bool = False  # its id is given to no other


@dataclass(slots=True)
class Template:
    """A part of a configuration that experiments share: it lies under the configuration of each that names it."""

    name: str
    config: dict[str, Any]  # as its user wrote it
    workspace_id: int


@dataclass(slots=True)
class Group:
    """A named set of users."""

    id: int
    name: str
    members: list[int] = field(default_factory=list)  # ids of users
    deleted: bool = False  # its id is given to no other


@dataclass(slots=True)
class RoleAssignment:
    """A role that a user, or each member of a group, has on this master. The other of the two ids is 0."""

    user_id: int
    group_id: int
    role: int  # domain.roles.Role
    created_at: float


@dataclass(slots=True)
class WorkspaceRole:
    """A role that a user, or each member of a group, has in one workspace alone. The other of the two ids is 0."""

    user_id: int
    group_id: int
    workspace_id: int
    role: int  # domain.roles.Role
    created_at: float


@dataclass(slots=True)
class UserSetting:
    """What a client keeps for its user: a text under a path and a key."""

    user_id: int
    storage_path: str
    key: str
    value: str


@dataclass(slots=True)
class ProjectVisit:
    """When a user looked at a project last."""

    user_id: int
    project_id: int
    at: float


@dataclass(slots=True)
class ConfigPolicy:
    """What an admin demands of configurations. ``workspace_id``: 0: of all. ``workload``: of which kind of work."""

    workspace_id: int
    workload: str
    invariant_config: dict[str, Any] = field(default_factory=dict)
    constraints: dict[str, Any] = field(default_factory=dict)


UNCATEGORIZED = 1
"""The id of the workspace, and of the project, that hold what was created without naming any. Both are always there."""


@dataclass(slots=True)
class Model:
    """A name under which checkpoints are registered. ``versions``: the last number that a version of it got."""

    id: int
    name: str
    user_id: int
    created_at: float
    updated_at: float
    description: str = ""
    labels: list[str] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    notes: str = ""
    archived: bool = False
    workspace_id: int = 1
    versions: int = 0
    deleted: bool = False  # its id is given to no other


@dataclass(slots=True)
class ModelVersion:
    """A checkpoint that was registered under the name of a model: its files stay. Numbers count from 1, and none is given twice."""

    model: str
    number: int
    checkpoint: str  # uuid
    created_at: float
    user_id: int = OWNER_ID
    updated_at: float = 0.0
    name: str = ""
    comment: str = ""
    notes: str = ""
    labels: list[str] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ArchivedTrial:
    """A trial that is archived though its experiment may not be."""

    trial_id: int
    archived_at: float


class WebhookType(str, Enum):
    """In which format a webhook's events are sent."""

    DEFAULT = "DEFAULT"
    SLACK = "SLACK"


class TriggerType(str, Enum):
    """What a webhook reports."""

    EXPERIMENT_STATE_CHANGE = "EXPERIMENT_STATE_CHANGE"
    METRIC_THRESHOLD_EXCEEDED = "METRIC_THRESHOLD_EXCEEDED"
    TASK_LOG = "TASK_LOG"
    CUSTOM = "CUSTOM"


class WebhookMode(str, Enum):
    """Of which experiments in its workspaces a webhook reports."""

    WORKSPACE = "WORKSPACE"  # all
    SPECIFIC = "SPECIFIC"  # those whose configuration names it


@dataclass(slots=True)
class Webhook:
    """Where to send what happens to experiments. ``triggers``: of each its ``type`` (``TriggerType``) and its ``condition``."""

    id: int
    name: str
    url: str  # http, https, or mailto
    type: WebhookType
    mode: WebhookMode
    triggers: list[dict[str, Any]]
    user_id: int
    created_at: float
    workspace_id: int | None = None  # None: of all
    deleted: bool = False  # its id is given to no other


class DeliveryState(str, Enum):
    """What became of an event that a webhook reports."""

    WAITING = "WAITING"
    DELIVERED = "DELIVERED"
    GIVEN_UP = "GIVEN_UP"


@dataclass(slots=True)
class WebhookDelivery:
    """An event that a webhook reports, committed together with what it reports. Written once: a second one with its id counts for
    nothing."""

    id: str  # uuid: the event's
    webhook_id: int
    created_at: float
    event: dict[str, Any]  # as the default format has it
    state: DeliveryState = DeliveryState.WAITING
    attempts: int = 0
    not_before: float = 0.0  # it rests until then, after a failure
    ended_at: float | None = None
    answer: str = ""  # what the receiver answered last, or why it could not be reached


@dataclass(slots=True)
class ClusterMessage:
    """What everybody who uses the cluster should know at present."""

    id: int
    message: str
    created_at: float
    starts_at: float
    ends_at: float | None = None  # None: until it is cleared


@dataclass(slots=True)
class LogDays:
    """For how many days the logs of an experiment's trials, or of one trial, are kept, whatever its configuration says; -1: for
    ever. What is set for a trial counts before what is set for its experiment."""

    noun: str  # "experiment" or "trial"
    id: int
    days: int


@dataclass(slots=True)
class TrialSource:
    """A trial that uses a checkpoint, by itself or (``model_id`` not 0) as a version of a model."""

    trial_id: int
    checkpoint: str  # uuid
    model_id: int
    model_version: int
    kind: str  # INFERENCE or FINE_TUNING
    reported_at: float


@dataclass(slots=True)
class Accelerators:
    """The accelerators of an attempt on one node, as its program reported them."""

    allocation_id: str
    node: str
    task_id: str
    experiment_id: int | None
    container: str
    kind: str  # as the vendor calls it
    uuids: list[str]
    pool: str
    reported_at: float


Record = Union[
    User,
    Token,
    Workspace,
    WorkspacePin,
    Project,
    Template,
    Model,
    ModelVersion,
    ArchivedTrial,
    Webhook,
    WebhookDelivery,
    ClusterMessage,
    LogDays,
    TrialSource,
    Accelerators,
    Group,
    RoleAssignment,
    WorkspaceRole,
    ConfigPolicy,
    UserSetting,
    ProjectVisit,
]

KEYS: dict[type, tuple[str, ...]] = {
    User: ("id",),
    Token: ("id",),
    Workspace: ("id",),
    WorkspacePin: ("user_id", "workspace_id"),
    Project: ("id",),
    Template: ("name",),
    Model: ("id",),
    ModelVersion: ("model", "number"),
    ArchivedTrial: ("trial_id",),
    Webhook: ("id",),
    WebhookDelivery: ("id",),
    ClusterMessage: ("id",),
    LogDays: ("noun", "id"),
    TrialSource: ("trial_id", "checkpoint", "model_id", "model_version"),
    Accelerators: ("allocation_id", "node"),
    Group: ("id",),
    RoleAssignment: ("user_id", "group_id", "role"),
    WorkspaceRole: ("user_id", "group_id", "workspace_id", "role"),
    ConfigPolicy: ("workspace_id", "workload"),
    UserSetting: ("user_id", "storage_path", "key"),
    ProjectVisit: ("user_id", "project_id"),
}
"""The fields that tell the records of one kind apart."""

FOUND_BY: dict[type, tuple[tuple[str, ...], ...]] = {
    User: (("username",),),
    Token: (("sha256",), ("user_id",)),
    Workspace: (("name",),),
    WorkspacePin: (),
    Project: (("workspace_id", "name"), ("key",)),
    Template: (("workspace_id",),),
    Model: (("name",),),
    ModelVersion: (("checkpoint",),),
    ArchivedTrial: (),
    Webhook: (("name",),),
    WebhookDelivery: (("webhook_id", "state", "created_at"), ("ended_at",)),
    ClusterMessage: (),
    LogDays: (),
    TrialSource: (("checkpoint",),),
    Accelerators: (("task_id",),),
    Group: (("name",),),
    RoleAssignment: (),
    WorkspaceRole: (),
    ConfigPolicy: (),
    UserSetting: (),
    ProjectVisit: (),
}
"""The fields by which records are looked up besides: the indexes of their tables."""


def key(record: Any) -> tuple[Any, ...]:
    """What tells ``record`` apart from the others of its kind."""
    return tuple(getattr(record, name) for name in KEYS[type(record)])
