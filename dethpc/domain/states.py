"""The states of every noun. The wire spells them ``STATE_<name>``, as Determined 0.38 does."""

from __future__ import annotations

from enum import Enum


class State(str, Enum):
    """State of an experiment or a trial (Determined's names)."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    STOPPING_COMPLETED = "STOPPING_COMPLETED"
    STOPPING_CANCELED = "STOPPING_CANCELED"
    STOPPING_KILLED = "STOPPING_KILLED"
    STOPPING_ERROR = "STOPPING_ERROR"
    COMPLETED = "COMPLETED"
    CANCELED = "CANCELED"
    ERROR = "ERROR"
    DELETING = "DELETING"
    DELETE_FAILED = "DELETE_FAILED"
    DELETED = "DELETED"

    @property
    def terminal(self) -> bool:
        return self in _TERMINAL

    @property
    def keeps_files(self) -> bool:
        """Whether nobody has begun to delete its files."""
        return self not in (State.DELETING, State.DELETE_FAILED, State.DELETED)

    @property
    def stopping(self) -> bool:
        return self in _ENDS

    @property
    def end(self) -> State:
        """Where a stopping state leads."""
        return _ENDS.get(self, self)


_TERMINAL = frozenset({State.COMPLETED, State.CANCELED, State.ERROR, State.DELETE_FAILED, State.DELETED})
_ENDS = {
    State.STOPPING_COMPLETED: State.COMPLETED,
    State.STOPPING_CANCELED: State.CANCELED,
    State.STOPPING_KILLED: State.CANCELED,
    State.STOPPING_ERROR: State.ERROR,
}


def shown_as(state: State, running: bool) -> str:
    """What an experiment or a trial is called: one that is ACTIVE is RUNNING while one of its runs runs, else QUEUED."""
    if state is State.ACTIVE:
        return "RUNNING" if running else "QUEUED"
    return str(state.value)


class TaskKind(str, Enum):
    """What a task is for."""

    TRIAL = "TRIAL"
    UNMANAGED_TRIAL = "UNMANAGED_TRIAL"  # a script elsewhere trains, and reports
    IMPORTED_TRIAL = "IMPORTED_TRIAL"  # it was trained without a master; its run directory was imported
    CHECKPOINT_GC = "CHECKPOINT_GC"
    COMMAND = "COMMAND"
    SHELL = "SHELL"
    NOTEBOOK = "NOTEBOOK"
    TENSORBOARD = "TENSORBOARD"
    GENERIC = "GENERIC"
    IMAGE_PULL = "IMAGE_PULL"

    @property
    def trains(self) -> bool:
        """Whether it has a trial."""
        return self in _TRAINING

    @property
    def launched(self) -> bool:
        """Whether somebody launches it with a configuration of its own."""
        return self in _LAUNCHED

    @property
    def submitted(self) -> bool:
        """Whether the master submits its runs to the scheduler."""
        return self not in (TaskKind.UNMANAGED_TRIAL, TaskKind.IMPORTED_TRIAL)


_TRAINING = frozenset({TaskKind.TRIAL, TaskKind.UNMANAGED_TRIAL, TaskKind.IMPORTED_TRIAL})
_LAUNCHED = frozenset({TaskKind.COMMAND, TaskKind.SHELL, TaskKind.NOTEBOOK, TaskKind.TENSORBOARD, TaskKind.GENERIC})


class Intent(str, Enum):
    """What the master wants of a run. Committed before anything is done about it."""

    GO = "GO"
    STOP = "STOP"  # checkpoint at the next boundary, exit 0
    KILL = "KILL"  # end now


class RunState(str, Enum):
    """SUBMITTING is the wish to submit; the other states are the scheduler's word."""

    SUBMITTING = "SUBMITTING"
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    ENDED = "ENDED"


class AttemptState(str, Enum):
    RUNNING = "RUNNING"
    ENDED = "ENDED"


class CheckpointState(str, Enum):
    ACTIVE = "ACTIVE"
    COMPLETED = "COMPLETED"
    ERROR = "ERROR"
    DELETED = "DELETED"
    PARTIALLY_DELETED = "PARTIALLY_DELETED"


class End(str, Enum):
    """Why an attempt ended: the failure taxonomy. See ``engine.ends.classify``."""

    COMPLETED = "COMPLETED"  # the training said that it finished
    STOPPED = "STOPPED"  # it stopped because the master asked (pause, searcher, cancel)
    PREEMPTED = "PREEMPTED"  # the scheduler took the slots; resumes
    TIMEOUT = "TIMEOUT"  # the job's time limit; resumes
    NODE_FAIL = "NODE_FAIL"  # hardware; resumes
    DAMAGED_CHECKPOINT = "DAMAGED_CHECKPOINT"  # what it went on from fails its checks; resumes from the one before
    WAITING = "WAITING"  # it needed the master and could not reach it; resumes
    STORAGE_AWAY = "STORAGE_AWAY"  # it needed its checkpoint storage, which did not answer; it rests, and resumes
    OUT_OF_MEMORY = "OUT_OF_MEMORY"  # counts as a restart
    USER_ERROR = "USER_ERROR"  # counts as a restart
    INVALID_HP = "INVALID_HP"  # the trial ends, the search goes on
    CANCELLED = "CANCELLED"  # somebody cancelled the job outside dethpc
    KILLED = "KILLED"  # the master killed it
    LAUNCH_FAILED = "LAUNCH_FAILED"  # it never got as far as user code
    LOST = "LOST"  # no evidence of any kind

    @property
    def counts_as_restart(self) -> bool:
        return self in (End.USER_ERROR, End.OUT_OF_MEMORY)

    @property
    def resumes(self) -> bool:
        return self in (End.PREEMPTED, End.TIMEOUT, End.NODE_FAIL, End.DAMAGED_CHECKPOINT, End.WAITING)
