"""Every exception that dethpc raises on purpose.

DethpcError
├── ConfigError              a configuration is wrong; carries one Problem per mistake
├── GresError                a request of generic resources that Slurm does not understand
├── ContextError             the context directory cannot be packed (too large, unreadable)
├── NotFound                 no such experiment, trial, checkpoint, ...
├── Refused                  the request is understood and not possible in this state
│   └── AlreadyExists        the name is another's
├── NotSupportedYet          a field or command that a later release brings
├── MasterError              talking to the master went wrong
│   ├── MasterUnreachable    no answer at the address
│   ├── ShuttingDown         the master ends and takes nothing more
│   ├── Unauthorized         the token is missing, wrong or expired
│   │   └── NotTheMaster     what listens at the address does not prove to be the master
│   └── RunOver              the run has ended for the master: nothing that it reports counts any more
├── LeaseHeld                another master serves this user and cluster
├── SchedulerError           talking to the scheduler went wrong
│   ├── SubmitRejected       the scheduler refused the job for good; trying again is pointless
│   ├── SubmitDeferred       the job cannot be submitted at present; the same job may be taken later
│   ├── SubmitUncertain      no clear answer: the job may or may not exist
│   └── SchedulerUnavailable the scheduler does not answer; try later
├── StoreError               the database failed
│   ├── StoreUnavailable     the database's server does not answer; try later
│   └── UnfitRow             the database works, and has no place for such a value
├── RunDirError              a run directory is damaged or belongs to someone else
├── RendezvousError          the nodes of a run did not meet in time; names the missing ones
├── CheckpointError          a checkpoint is missing, incomplete or damaged
│   ├── CheckpointDamaged    it is there, and not what was stored
│   ├── CheckpointNotFound   it is not there
│   └── CheckpointNotOwned   it is there, and another's: it is neither deleted nor served
├── DataLayerError           a dataset cannot be cached: no folder, no room, nothing in it
│   └── DatasetDamaged       a cached dataset is not what was stored
├── ImageError               an image of a container cannot be had; carries the registry's words
├── MissingDriver            a storage needs a package that this Python does not have; an OSError, too
└── InvalidHP                raised by user code: this hyperparameter combination makes no sense

Below them are those that training code and scripts know from Determined. Most are there to be caught: dethpc raises its own.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Optional, Sequence, Tuple, Type, Union


class DethpcError(Exception):
    """Base of every exception that dethpc raises on purpose."""


Path = Tuple[Union[str, int], ...]
"""The way to a value in a document: names of fields, and indexes in lists."""


def dotted(path: Path) -> str:
    """``("a", "b", 0)`` as ``a.b[0]``; the empty path is ``config``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".") or "config"


def path_of(field: str) -> Path:
    """The path of which ``field`` is the dotted text; one step where no path of plain names has this text."""
    path = tuple(int(index) if index else name for index, name in re.findall(r"\[(\d+)\]|([^.\[\]]+)", field))
    return path if dotted(path) == field else (field,)


class Problem:
    """One mistake in a configuration.

    Attributes: ``path`` (the way to the value), ``message`` (what is wrong there, a phrase for a person to go after the field's
    name), ``found`` and ``allowed`` (what stands there and what may, as phrases; "" where it is not about one value), ``hint`` (for
    example a likely spelling), ``file`` and ``line`` (1-based; None until ``at`` has set them, or when unknown).
    """

    __slots__ = ("allowed", "file", "found", "hint", "line", "message", "path")

    def __init__(
        self,
        path: Union[str, Path],
        message: str,
        hint: Optional[str] = None,
        *,
        found: str = "",
        allowed: str = "",
    ) -> None:
        """``path`` may be dotted text."""
        self.path: Path = (path,) if isinstance(path, str) else path
        self.message, self.found, self.allowed, self.hint = message, found, allowed, hint
        self.file: Optional[str] = None
        self.line: Optional[int] = None

    def at(self, file: Optional[str], line: Optional[int] = None) -> Problem:
        """This problem, with its place."""
        self.file, self.line = file, line
        return self

    @classmethod
    def of_value(cls, path: Union[str, Path], actual: str, allowed: str, hint: Optional[str] = None) -> Problem:
        """``actual`` stands where only ``allowed`` may: "a list", "one of a, b"."""
        message = f"{actual} is not {allowed}" if allowed.startswith("one of ") else f"must be {allowed}, not {actual}"
        return cls(path, message, hint, found=actual, allowed=allowed)

    @classmethod
    def unknown(cls, path: Path, fields: str, hint: Optional[str] = None) -> Problem:
        """A field that its section does not have. ``fields`` are those that it has."""
        message = "unknown field" if hint else f"unknown field; there are {fields}"
        return cls(path, message, hint, found="an unknown field", allowed=fields)

    @property
    def field(self) -> str:
        """The path as dotted text."""
        return dotted(self.path)

    def __str__(self) -> str:
        place = self.file or "config"
        if self.line is not None:
            place += f":{self.line}"
        if place != f"--config {self.field}":
            place += f": {self.field}"
        return f"{place}: {self.message}" + (f" ({self.hint})" if self.hint else "")

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("allowed", "field", "file", "found", "hint", "line", "message")}


class ConfigError(DethpcError):
    """A configuration is wrong. ``problems`` lists every mistake found, not only the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class GresError(DethpcError):
    """A request of generic resources that Slurm does not understand, or takes for what no job can have."""


class ContextError(DethpcError):
    """The context directory cannot be packed."""


class NotFound(DethpcError):
    """No such object."""


class Refused(DethpcError):
    """The request is understood but not possible in the present state."""


class AlreadyExists(Refused):
    """The name is that of another of its kind."""


class NotSupportedYet(DethpcError):
    """A field or command that a later release brings."""


class MasterError(DethpcError):
    """Talking to the master went wrong. ``status`` is the HTTP status, or 0 without an answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class MasterUnreachable(MasterError):
    """Nobody answers at the master's address."""


class ShuttingDown(MasterError):
    """The master ends: it takes nothing more."""


class Unauthorized(MasterError):
    """The token is missing, wrong or expired."""


class NotTheMaster(Unauthorized):
    """What listens at the master's address does not prove to be the master, so it was told nothing. The master may come back."""


class RunOver(MasterError):
    """The run has ended for the master: nothing that it reports counts any more."""


class LeaseHeld(DethpcError):
    """Another master serves this user and cluster."""


class SchedulerError(DethpcError):
    """Talking to the scheduler went wrong."""


class SubmitRejected(SchedulerError):
    """The scheduler refused the job for good."""


class SubmitDeferred(SchedulerError):
    """The scheduler does not take the job at present, or a file of it is missing; the same job may be taken later."""


class SubmitUncertain(SchedulerError):
    """The scheduler gave no clear answer: the job may or may not exist."""


class SchedulerUnavailable(SchedulerError):
    """The scheduler does not answer at present."""


class StoreError(DethpcError):
    """The database failed."""


class StoreUnavailable(StoreError):
    """The server of the database does not answer at present, or ended the connection."""


class UnfitRow(StoreError):
    """The database works, and has no place for a value of this row: the same again would fail again."""


class RunDirError(DethpcError):
    """A run directory is damaged or belongs to someone else."""


class RendezvousError(DethpcError):
    """The nodes of a run did not meet in time."""


class CheckpointError(DethpcError):
    """A checkpoint is missing, incomplete or damaged."""


class CheckpointDamaged(CheckpointError):
    """A checkpoint is there, and is not what was stored."""


class CheckpointNotFound(CheckpointError):
    """A checkpoint is not in its storage."""


class CheckpointNotOwned(CheckpointError):
    """A checkpoint does not belong to the experiment that is to delete it, or whose run asks for it."""


class DataLayerError(DethpcError):
    """A dataset cannot be cached; says why, and what to change."""


class DatasetDamaged(DataLayerError):
    """A cached dataset is there, and is not what was stored."""


class ImageError(DethpcError):
    """An image cannot be had, in words of whoever refuses it."""


class MissingDriver(DethpcError, OSError):
    """A storage needs a package that this Python does not have; says how it is installed."""


class InvalidHP(DethpcError):
    """Raise this in training code when a hyperparameter combination makes no sense: the trial ends, the search goes on."""


class MetricMissing(DethpcError, RuntimeError, ValueError):
    """A validation lacks what the search compares trials by, and the next attempt's would, too: the trial is not started again."""


# --- Determined's own ------------------------------------------------------------------------------------------------


class CheckpointStateException(Refused):
    """The state of a checkpoint does not allow it: it is being written, or it is deleted."""


class InvalidCheckpointException(DethpcError):
    """A checkpoint has not the files that were looked for."""

    def __init__(self) -> None:
        super().__init__("Invalid checkpoint.")


class NoDirectStorageAccess(DethpcError):
    """The checkpoint storage cannot be reached from here."""


class ProxiedDownloadFailed(DethpcError):
    """A checkpoint could not be downloaded through the master."""


class MultipleDownloadsFailed(DethpcError):
    """No way of downloading a checkpoint worked."""


class EnterpriseOnlyError(DethpcError):
    """A part of Determined that its enterprise edition has."""


class InternalException(DethpcError):
    """A mistake of the platform itself. ``message`` says which."""

    def __init__(self, message: str) -> None:
        self.message = f"Internal error: {message}. Please tell the administrator of this installation."
        super().__init__(self.message)


class InvalidExperimentException(BaseException):
    """An experiment is invalid. As in Determined no ``except Exception`` catches it."""


class InvalidDataTypeException(InvalidExperimentException):
    """Data of a type that a training API does not take."""

    def __init__(self, typ: Type[Any], message: str) -> None:
        super().__init__(f"Invalid data type ({typ.__name__}): {message}.")


class InvalidConfigurationException(InvalidExperimentException):
    """A configuration that a training API does not take."""

    def __init__(self, config: Dict[str, Any], message: str) -> None:
        super().__init__(f"Invalid configuration ({config}): {message}.")


class InvalidModelException(InvalidExperimentException):
    """A model that a training API does not take."""


class InvalidTrial(InvalidExperimentException, ValueError):
    """How a trial class uses its context, or what it returns, cannot work. ``except Exception`` catches it, unlike others."""


class NotTraining(InternalException, RuntimeError):
    """What is known only once, or only where, a trial trains."""

    def __init__(self, message: str) -> None:
        self.message = message
        RuntimeError.__init__(self, message)


class StopLoadingImplementation(DethpcError):
    """Ends the loading of user code early."""


class WorkerError(DethpcError):
    """A worker process failed, and nobody knows why."""


class WorkerFinishedGracefully(DethpcError):
    """Ends a worker that has nothing left to do."""


class SkipWorkloadException(DethpcError):
    """A trial may raise it where a phase can be left out."""


class BadRequestException(DethpcError):
    """A request of a client did not work. The client's session raises its kinds, each of which is one of dethpc's own as well."""

    @property
    def message(self) -> str:
        return str(self)


class APIException(BadRequestException):
    """The master answered with an error. ``status_code`` is the HTTP status."""

    status_code = 0


class NotFoundException(APIException, NotFound):
    """404."""

    status_code = 404


class ForbiddenException(BadRequestException, Unauthorized):
    """403."""


class UnauthenticatedException(BadRequestException, Unauthorized):
    """401."""


class MasterNotFoundException(BadRequestException, MasterUnreachable):
    """Nobody answers at the master's address."""
