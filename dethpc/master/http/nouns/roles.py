"""Routes of roles, of who has them, and of groups of users."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from dethpc.domain import records as stored
from dethpc.domain.records import RoleAssignment, WorkspaceRole
from dethpc.domain.roles import ASSIGNABLE, WORKSPACE_ADMIN, Role
from dethpc.domain.text import names
from dethpc.errors import AlreadyExists, NotFound, Refused
from dethpc.master.durable.records import Records
from dethpc.master.experiments import filing
from dethpc.master.http.access import AdminSomewhere, AnyUser, Owner, TheAuth, TheRecords, Viewer, ViewerSomewhere
from dethpc.master.http.auth import Principal
from dethpc.master.http.models import Given, Pagination, UserText, Wire, paged
from dethpc.master.http.nouns.users import User
from dethpc.master.http.router import new_router

_PERMISSIONS = {
    Role.VIEWER: """VIEW_EXPERIMENT_ARTIFACTS VIEW_EXPERIMENT_METADATA VIEW_WORKSPACE VIEW_PROJECT VIEW_MODEL_REGISTRY
        VIEW_TEMPLATES VIEW_CLUSTER_USAGE VIEW_TOKEN CREATE_TOKEN UPDATE_TOKEN""",
    Role.EDITOR: """CREATE_EXPERIMENT UPDATE_EXPERIMENT UPDATE_EXPERIMENT_METADATA DELETE_EXPERIMENT CREATE_PROJECT
        UPDATE_PROJECT DELETE_PROJECT CREATE_MODEL_REGISTRY EDIT_MODEL_REGISTRY DELETE_MODEL_REGISTRY DELETE_MODEL_VERSION
        DELETE_OTHER_USER_MODEL_REGISTRY DELETE_OTHER_USER_MODEL_VERSION CREATE_TEMPLATES UPDATE_TEMPLATES DELETE_TEMPLATES""",
    Role.ADMIN: """ADMINISTRATE_USER UPDATE_GROUP ASSIGN_ROLES CREATE_WORKSPACE UPDATE_WORKSPACE DELETE_WORKSPACE
        SET_WORKSPACE_AGENT_USER_GROUP SET_WORKSPACE_CHECKPOINT_STORAGE_CONFIG SET_WORKSPACE_DEFAULT_RESOURCE_POOL
        VIEW_MASTER_LOGS VIEW_MASTER_CONFIG UPDATE_MASTER_CONFIG UPDATE_AGENTS VIEW_SENSITIVE_AGENT_INFO
        CONTROL_STRICT_JOB_QUEUE ADMINISTRATE_TOKEN CREATE_OTHER_TOKEN VIEW_OTHER_TOKEN""",
}
"""What each role adds to those below it, in Determined's words."""

_CLUSTER_ONLY = set(
    """VIEW_CLUSTER_USAGE VIEW_TOKEN CREATE_TOKEN UPDATE_TOKEN ADMINISTRATE_USER UPDATE_GROUP CREATE_WORKSPACE VIEW_MASTER_LOGS
    VIEW_MASTER_CONFIG UPDATE_MASTER_CONFIG UPDATE_AGENTS VIEW_SENSITIVE_AGENT_INFO CONTROL_STRICT_JOB_QUEUE ADMINISTRATE_TOKEN
    CREATE_OTHER_TOKEN VIEW_OTHER_TOKEN""".split()
)
"""Permissions that no role in a single workspace gives."""


class ScopeTypeMask(Wire):
    cluster: bool = True
    workspace: bool = False


class Permission(Wire):
    id: str
    name: str
    scope_type_mask: ScopeTypeMask

    @classmethod
    def of(cls, name: str) -> Permission:
        return cls(
            id=f"PERMISSION_TYPE_{name}",
            name=name.lower().replace("_", " "),
            scope_type_mask=ScopeTypeMask(workspace=name not in _CLUSTER_ONLY),
        )


class RoleOnWire(Wire):
    role_id: int = 0
    name: str = ""
    permissions: list[Permission] = []
    scope_type_mask: ScopeTypeMask = ScopeTypeMask()

    @classmethod
    def of(cls, role_id: int) -> RoleOnWire:
        role = _meaning(role_id)
        names = [name for lower in sorted(_PERMISSIONS) if lower <= role for name in _PERMISSIONS[lower].split()]
        if role_id == WORKSPACE_ADMIN:  # in one workspace alone
            names = [name for name in names if name not in _CLUSTER_ONLY]
        return cls(
            role_id=role_id,
            name=ASSIGNABLE[role_id],
            scope_type_mask=ScopeTypeMask(cluster=role_id != WORKSPACE_ADMIN, workspace=role_id != Role.ADMIN),
            permissions=[Permission.of(name) for name in names],
        )


class Assignment(Wire):
    role: RoleOnWire
    scope_workspace_id: int | None = None
    scope_cluster: bool | None = None


class UserAssignment(Wire):
    user_id: int
    role_assignment: Assignment


class GroupAssignment(Wire):
    group_id: int
    role_assignment: Assignment


class Assignments(Wire):
    user_role_assignments: list[UserAssignment] | None = None
    group_role_assignments: list[GroupAssignment] | None = None


class RoleWithAssignments(Assignments):
    role: RoleOnWire


class AssignmentSummary(Wire):
    role_id: int
    scope_workspace_ids: list[int] = []
    scope_cluster: bool = True


class Summary(Wire):
    roles: list[RoleOnWire]
    assignments: list[AssignmentSummary]

    @classmethod
    def of(cls, assigned: Iterable[tuple[Role, int]]) -> Summary:
        """Of roles, each with the workspace in which it holds; 0: in all."""
        scopes: dict[int, set[int]] = {}
        for role, workspace_id in assigned:
            scopes.setdefault(_number(role, workspace_id), set()).add(workspace_id)
        order = sorted(scopes, reverse=True)
        return cls(
            roles=[RoleOnWire.of(number) for number in order],
            assignments=[
                AssignmentSummary(
                    role_id=number, scope_cluster=0 in scopes[number], scope_workspace_ids=sorted(scopes[number] - {0})
                )
                for number in order
            ],
        )


class RolesOfUser(Wire):
    roles: list[RoleWithAssignments]


class Roles(Wire):
    roles: list[RoleOnWire]
    pagination: Pagination


class RoleList(Wire):
    roles: list[RoleWithAssignments]


class PageRequest(Wire):
    offset: int | None = None
    limit: int = 0
    workspace_id: int | None = None


class RoleIds(Wire):
    role_ids: list[int] = []


class GroupOnWire(Wire):
    group_id: int
    name: UserText


class GroupDetails(GroupOnWire):
    users: list[User]


class GroupAnswer(Wire):
    group: GroupDetails


class GroupResult(Wire):
    group: GroupOnWire
    num_members: int


class Groups(Wire):
    groups: list[GroupResult]
    pagination: Pagination


class GroupSearch(Wire):
    name: str | None = None
    user_id: int | None = None
    offset: int | None = None
    limit: int = 0


class GroupFields(Wire):
    name: Given | None = None
    add_users: list[int] | None = None
    remove_users: list[int] | None = None


class WorkspaceMembers(Wire):
    groups: list[GroupDetails]
    users_assigned_directly: list[User]
    assignments: list[RoleWithAssignments]


class GroupsOfUsers(Wire):
    user_ids: list[int] = []
    add_groups: list[int] = []
    remove_groups: list[int] = []


router = new_router(prefix="/api/v1", tags=["roles"])


@router.get("/permissions/summary")
def permissions(who: AnyUser) -> Summary:
    """What the user who asks may do."""
    of_all = [(who.role, 0)] if who.role else []
    return Summary.of([*of_all, *((role, id) for id, role in who.workspaces.items())])


@router.post("/roles/search")
def list_roles(request: PageRequest, who: AnyUser) -> Roles:
    shown, pagination = paged(
        [RoleOnWire.of(number) for number in sorted(ASSIGNABLE)], request.offset or 0, request.limit
    )
    return Roles(roles=shown, pagination=pagination)


@router.post("/roles/search/by-assignability")
def assignable_roles(request: PageRequest, who: AnyUser) -> Roles:
    """Those that may be assigned in the workspace, or (0) for the whole master."""
    other = Role.ADMIN if request.workspace_id else WORKSPACE_ADMIN
    rows = [RoleOnWire.of(number) for number in sorted(ASSIGNABLE) if number != other]
    shown, pagination = paged(rows, request.offset or 0, request.limit)
    return Roles(roles=shown, pagination=pagination)


@router.post("/roles/search/by-ids")
def roles_by_ids(request: RoleIds, records: TheRecords, who: ViewerSomewhere) -> RoleList:
    """With who has them. Raises NotFound for one that there is not."""
    rows = _assigned(records, who)
    return RoleList(roles=[_with_assignments(_assignable(number), rows) for number in request.role_ids])


@router.get("/roles/search/by-user/{user_id}")
def roles_of_user(user_id: int, records: TheRecords, auth: TheAuth, who: ViewerSomewhere) -> RolesOfUser:
    """Their own and those of their groups. An admin has that role without an assignment."""
    user = records.get(stored.User, user_id)
    groups = {group.id for group in records.find(stored.Group, deleted=False) if user_id in group.members}
    rows = [row for row in _assigned(records, who) if row.user_id == user_id or row.group_id in groups]
    if user.admin and not any(row.role == Role.ADMIN for row in rows):
        rows.append(RoleAssignment(user_id, 0, Role.ADMIN, user.created_at))
    return RolesOfUser(
        roles=[_with_assignments(number, rows) for number in sorted(set(map(_number_of, rows)), reverse=True)]
    )


@router.get("/roles/search/by-group/{group_id}")
def roles_of_group(group_id: int, records: TheRecords, who: ViewerSomewhere) -> Summary:
    records.live(stored.Group, group_id)
    rows = [row for row in _assigned(records, who) if row.group_id == group_id]
    return Summary.of((Role(row.role), _workspace_of(row)) for row in rows)


@router.get("/roles/workspace/{workspace_id}")
def members_of_workspace(workspace_id: int, records: TheRecords, who: Viewer) -> WorkspaceMembers:
    """Who may see or change this workspace: all who have a role in it, or for the whole master."""
    filing.workspace(records, workspace_id)
    rows = [row for row in _assigned(records, who) if _workspace_of(row) in (0, workspace_id)]
    groups, users = {row.group_id for row in rows}, {row.user_id for row in rows}
    return WorkspaceMembers(
        groups=[_details(records, group) for group in records.find(stored.Group, deleted=False) if group.id in groups],
        users_assigned_directly=[User.of(user) for user in records.find(stored.User) if user.id in users],
        assignments=[_with_assignments(number, rows) for number in sorted(ASSIGNABLE)],
    )


@router.post("/roles/add-assignments")
def assign(request: Assignments, records: TheRecords, who: AdminSomewhere) -> dict[str, str]:
    """For the whole master, or in one workspace, which its admins may. Nothing is assigned where one of them is wrong."""
    with records.exclusive():  # no workspace is deleted meanwhile
        for row in _rows(records, request, who):
            records.put(row)
    return {}


@router.post("/roles/remove-assignments")
def unassign(request: Assignments, records: TheRecords, who: AdminSomewhere) -> dict[str, str]:
    """Raises NotFound for one that there is not; then none is removed."""
    named = {(type(row), stored.key(row)): row for row in _rows(records, request, who)}
    there = {(type(row), stored.key(row)): row for row in _assigned(records, who)}
    for key, row in named.items():
        if key not in there:
            whom = f"user {row.user_id}" if row.user_id else f"group {row.group_id}"
            where = f"workspace {_workspace_of(row)}" if _workspace_of(row) else "all workspaces"
            role = ASSIGNABLE[_number_of(row)]
            raise NotFound(
                f"the role {role} is not assigned there: {whom} does not have it in {where}; nothing was removed"
            )
    for key in named:
        records.drop(there[key])
    return {}


Assigned = RoleAssignment | WorkspaceRole


def _assigned(records: Records, who: Principal) -> list[Assigned]:
    """All assignments that the user may see."""
    in_workspaces = records.find(WorkspaceRole)
    seen = [row for row in in_workspaces if who.role_in(row.workspace_id) >= Role.VIEWER]
    return [*records.find(RoleAssignment), *seen]


def _workspace_of(row: Assigned) -> int:
    """0: it holds in all."""
    return row.workspace_id if isinstance(row, WorkspaceRole) else 0


def _number(role: Role, workspace_id: int) -> int:
    """As the API knows it."""
    return WORKSPACE_ADMIN if workspace_id and role is Role.ADMIN else role


def _number_of(row: Assigned) -> int:
    return _number(Role(row.role), _workspace_of(row))


def _meaning(number: int) -> Role:
    return Role.ADMIN if number == WORKSPACE_ADMIN else Role(number)


def _rows(records: Records, request: Assignments, who: Principal) -> list[Assigned]:
    """Raises NotFound, Refused, Forbidden."""
    now = time.time()
    rows: list[Assigned] = []
    pairs = [(one.user_id, 0, one.role_assignment) for one in request.user_role_assignments or ()]
    pairs += [(0, one.group_id, one.role_assignment) for one in request.group_role_assignments or ()]
    for user_id, group_id, assignment in pairs:
        number, workspace_id = _assignable(assignment.role.role_id), assignment.scope_workspace_id or 0
        who.must_be(Role.ADMIN, workspace_id)
        if group_id:
            records.live(stored.Group, group_id)
        else:
            records.get(stored.User, user_id)
        if (number == WORKSPACE_ADMIN) > bool(workspace_id) or (number == Role.ADMIN and workspace_id):
            raise Refused(
                "WorkspaceAdmin is a role in one workspace, and ClusterAdmin in all: name the other, or a workspace"
            )
        if workspace_id:
            space = filing.workspace(records, workspace_id)
            rows.append(WorkspaceRole(user_id, group_id, space.id, _meaning(number), now))
        else:
            rows.append(RoleAssignment(user_id, group_id, _meaning(number), now))
    return rows


def _assignable(number: int) -> int:
    """Raises NotFound."""
    if number not in ASSIGNABLE:
        raise NotFound(f"there is no role {number}; det rbac list-roles lists them")
    return number


def _with_assignments(number: int, rows: Sequence[Assigned]) -> RoleWithAssignments:
    role = RoleOnWire.of(number)
    rows = [row for row in rows if _number_of(row) == number]

    def assignment(row: Assigned) -> Assignment:
        workspace_id = _workspace_of(row)
        return Assignment(role=role, scope_cluster=not workspace_id, scope_workspace_id=workspace_id or None)

    return RoleWithAssignments(
        role=role,
        user_role_assignments=[
            UserAssignment(user_id=row.user_id, role_assignment=assignment(row)) for row in rows if row.user_id
        ],
        group_role_assignments=[
            GroupAssignment(group_id=row.group_id, role_assignment=assignment(row)) for row in rows if row.group_id
        ],
    )


# --- groups


@router.post("/groups/search")
def list_groups(request: GroupSearch, records: TheRecords, who: ViewerSomewhere) -> Groups:
    """``name``: the whole name. ``user_id``: those that this user is a member of."""
    matches = [
        GroupResult(group=GroupOnWire(group_id=group.id, name=group.name), num_members=len(group.members))
        for group in records.find(stored.Group, deleted=False)
        if request.name in (None, "", group.name) and (not request.user_id or request.user_id in group.members)
    ]
    shown, pagination = paged(matches, request.offset or 0, request.limit)
    return Groups(groups=shown, pagination=pagination)


@router.post("/groups")
def create_group(request: GroupFields, records: TheRecords, who: Owner) -> GroupAnswer:
    with records.exclusive():
        name = _new_name(records, request.name or "")
        group = records.add(stored.Group, name=name, members=_members(records, (), request))
    return GroupAnswer(group=_details(records, group))


@router.get("/groups/{group_id}")
def get_group(group_id: int, records: TheRecords, who: ViewerSomewhere) -> GroupAnswer:
    return GroupAnswer(group=_details(records, records.live(stored.Group, group_id)))


@router.put("/groups/{group_id}")
def change_group(group_id: int, request: GroupFields, records: TheRecords, who: Owner) -> GroupAnswer:
    with records.exclusive():
        before = records.live(stored.Group, group_id)
        name = before.name if request.name in (None, before.name) else _new_name(records, request.name)
        members = _members(records, before.members, request)
        after = records.change(stored.Group, group_id, to=lambda group: replace(group, name=name, members=members))
    return GroupAnswer(group=_details(records, after))


@router.delete("/groups/{group_id}")
def delete_group(group_id: int, records: TheRecords, who: Owner) -> dict[str, str]:
    """Its members lose the roles that they have by it."""
    with records.exclusive():
        records.live(stored.Group, group_id)
        every: list[Assigned] = [*records.find(RoleAssignment), *records.find(WorkspaceRole)]
        for row in every:
            if row.group_id == group_id:
                records.drop(row)
        records.change(stored.Group, group_id, to=lambda group: replace(group, deleted=True, members=[]))
    return {}


@router.patch("/users/assignments")
def assign_groups(request: GroupsOfUsers, records: TheRecords, who: Owner) -> dict[str, str]:
    """Put users into groups, and take them out of others."""
    with records.exclusive():
        for group_id in {*request.add_groups, *request.remove_groups}:
            records.live(stored.Group, group_id)
        for user_id in request.user_ids:
            records.get(stored.User, user_id)
        for group_id in request.add_groups:
            _change_members(records, group_id, lambda members: {*members, *request.user_ids})
        for group_id in request.remove_groups:
            _change_members(records, group_id, lambda members: {*members} - {*request.user_ids})
    return {}


def _change_members(records: Records, group_id: int, to: Callable[[Sequence[int]], set[int]]) -> None:
    records.change(stored.Group, group_id, to=lambda group: replace(group, members=sorted(to(group.members))))


def _new_name(records: Records, name: str) -> str:
    """Raises Refused, AlreadyExists."""
    names.check_handle("group", name)
    if any(group.name == name for group in records.find(stored.Group, deleted=False)):
        raise AlreadyExists(f"group {name!r} already exists")
    return name


def _members(records: Records, before: Sequence[int], request: GroupFields) -> list[int]:
    """Raises NotFound for a user whom there is not, or who is to be removed and is no member."""
    for user_id in request.add_users or ():
        records.get(stored.User, user_id)
    for user_id in {*(request.remove_users or ())} - {*before}:
        raise NotFound(f"user {records.get(stored.User, user_id).username!r} is not a member of this group")
    return sorted({*before, *(request.add_users or ())} - {*(request.remove_users or ())})


def _details(records: Records, group: stored.Group) -> GroupDetails:
    users = [User.of(user) for user in records.find(stored.User) if user.id in group.members]
    return GroupDetails(group_id=group.id, name=group.name, users=users)
