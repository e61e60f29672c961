"""Commands and options of Determined's ``det`` that dethpc lacks, with a sentence on what to use instead; also commands of other
tools that users try: ``master stop``, ``submit``.

A name covers its subcommands: ``notebook`` covers ``notebook start``, unless that has a line of its own. A sentence may
name only commands that exist (a test tries each).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

_NO_LOGIN = (
    "Your token file is enough for your own master. At another, set DET_MASTER: det user login NAME, or DET_USER_TOKEN "
    "(det token create makes one)"
)
_NO_PROVIDER = "There is no identity provider: users have passwords (det user change-password) and access tokens (det token create)"
_NO_KUBERNETES = "It belongs to Kubernetes; limits of pools are in the site file (docs/site-config.md)"
_NO_MACHINES = (
    "Slurm has the machines, so nothing is to deploy; to try a real Slurm on this one: det deploy slurm-dev up"
)
_TASKS = "det task list shows what runs, det task describe ID its allocations"
_CREATE = "Create an experiment: det experiment create CONFIG CONTEXT_DIR"
_OVERVIEW = "det experiment list shows experiments, det job list the queue, and det agent list the nodes"

_SENTENCES = {
    "allocation": _TASKS,
    "alloc": _TASKS,
    "auth": _NO_LOGIN,
    "dev": "The REST API is in docs/api.md, with a line for curl; a token for it: det token create",
    "dev auth-token": "Make one that you can revoke: det token create",
    "deploy aws": _NO_MACHINES,
    "deploy gcp": _NO_MACHINES,
    "deploy gke": _NO_MACHINES,
    "deploy gke-experimental": _NO_MACHINES,
    "deploy local": "A master starts when one is needed; to try a real Slurm: det deploy slurm-dev up",
    "deploy local logs": "The master's log is shown by: det master logs",
    "deploy local master-down": "Stop your master with: det master down",
    "deploy local master-up": "Start your master with: det master up",
    "experiment delete-tb-files": "They are in checkpoint_storage, in CLUSTER_ID/tensorboard/experiment/ID: remove that folder",
    "experiment download": "Choose with det experiment list-checkpoints ID --best 3, then: det checkpoint download UUID",
    "master cleanup-message": "Clear the message with: det master cluster-message clear",
    "master config set": "Edit the site file, then end the master: det master down; the next one reads it",
    "oauth": _NO_PROVIDER,
    "ps": _OVERVIEW,
    "queue": "The queue is shown by: det job list",
    "resource-pool bindings": "It is not needed: every workspace may use every pool",
    "run": _CREATE,
    "sso": _NO_LOGIN,
    "status": _OVERVIEW,
    "submit": _CREATE,
    "token login": _NO_LOGIN,
    "trial support-bundle": "Collect these instead: det trial describe ID --json, det trial logs ID and det doctor",
    "workspace bindings": _NO_KUBERNETES,
    "workspace resource-quota": _NO_KUBERNETES,
}

_UP = "Start your master with: det master up"
_DOWN = "Stop your master with: det master down"
_INFO = "What your master does is shown by: det master info"
_STOP = "det experiment pause ID lets it go on later; to end it: det experiment cancel ID, or at once: det experiment kill ID"
_RESUME = "A paused one goes on with: det experiment activate ID; one that has ended: det experiment continue ID"
_END_JOB = "Jobs are experiments here; to end one: det experiment cancel ID, or at once: det experiment kill ID"
_END_TRIAL = "End a trial with: det trial kill ID"

_HABITS = {
    "experiment resume": _RESUME,
    "experiment rm": "Delete an experiment with: det experiment delete ID",
    "experiment show": "Show an experiment with: det experiment describe ID",
    "experiment start": _RESUME,
    "experiment status": "How an experiment is: det experiment describe ID; to watch it: det experiment wait ID",
    "experiment stop": _STOP,
    "job cancel": _END_JOB,
    "job kill": _END_JOB,
    "job rm": _END_JOB,
    "master restart": "det master down stops your master, and det master up starts it again",
    "master start": _UP,
    "master status": _INFO,
    "master stop": _DOWN,
    "trial cancel": _END_TRIAL,
    "trial show": "Show a trial with: det trial describe ID",
    "trial stop": _END_TRIAL,
}
"""Commands that other tools have, and Determined has not."""


_NODES = "The nodes as they are then: det agent list --json, or --csv"

_ALLOCATIONS = "A log has the lines of all allocations in their order; those since a time: --since 10m"
_LINES = "Lines are chosen by node and by rank: det trial logs ID --node NAME --rank N"

_OPTIONS = {
    "agent disable --csv": _NODES,
    "agent disable --json": _NODES,
    "agent enable --csv": _NODES,
    "agent enable --json": _NODES,
    "deploy --image-repo-prefix": _NO_MACHINES,
    "deploy --no-preflight-checks": _NO_MACHINES,
    "deploy --no-wait-for-master": _NO_MACHINES,
    "command logs --allocation-id": _ALLOCATIONS,
    "command logs --container-id": _LINES,
    "experiment logs --container-id": _LINES,
    "notebook logs --allocation-id": _ALLOCATIONS,
    "notebook logs --container-id": _LINES,
    "shell logs --allocation-id": _ALLOCATIONS,
    "shell logs --container-id": _LINES,
    "tensorboard logs --allocation-id": _ALLOCATIONS,
    "tensorboard logs --container-id": _LINES,
    "shell start --show-ssh-command": "The command for ssh is printed by show_ssh_command, one of the commands of: det shell",
    "task logs --allocation-id": _ALLOCATIONS,
    "task logs --container-id": _LINES,
    "trial logs --container-id": _LINES,
    **{
        f"workspace create {option}": _NO_KUBERNETES
        for option in "--auto-create-namespace --auto-create-namespace-all-clusters --cluster-name --namespace -n "
        "--resource-quota".split()
    },
    "rbac list-roles --exclude-global-roles": "All of them are listed: ClusterAdmin alone is of no workspace",
    **{
        f"{command} {option}": "All of them are listed: leave the option out"
        for command in ("rbac list-roles", "user-group list")
        for option in ("--limit", "--offset", "--pages")
    },
    "user create --remote": _NO_PROVIDER,
    "user edit --remote": _NO_PROVIDER,
}


def in_place_of(option: str, command: Sequence[str]) -> Optional[str]:
    """What to say to an option of Determined's that ``det COMMAND...`` has not here; None: it is none of Determined's either."""
    name = " ".join(command)
    sentence = _OPTIONS.get(f"{name} {option}")
    return sentence and f"dethpc's 'det {name}' has no {option}. {sentence}"


def instead(command: Sequence[str]) -> Optional[str]:
    """What to say to ``det WORDS...``, which is not here; None: Determined has no such command either. The first words count, as
    many as one of the sentences has."""
    for count in range(len(command), 0, -1):
        name = " ".join(command[:count])
        if sentence := _SENTENCES.get(name) or _HABITS.get(name):
            return f"dethpc has no 'det {name}'. {sentence}"
    return None
