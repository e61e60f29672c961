"""The calls of Determined's REST API as functions, and what they take and give as objects. ::

    experiment = bindings.get_GetExperiment(session, experimentId=7).experiment
    if experiment.state == bindings.experimentv1State.COMPLETED:
        ...
    bindings.patch_PatchTrial(session, trialId=3, body=bindings.v1PatchTrialRequest(trialId=3, state=...))

A call is made from its path when it is first accessed, an object from the JSON received: an attribute that the master did not
send is None. The master answers with NotSupportedYet what it does not serve.
"""

from __future__ import annotations

import enum
import json
import re
from typing import Any, Callable, Dict, Iterator, Optional, Type

from dethpc.common.api._calls import PATHS, STREAMS
from dethpc.common.api._enumerations import VALUES
from dethpc.common.api._session import AnySession, client_session

_IN_PATH = re.compile(r"\{(\w+)\}")
_CLASS = re.compile(r"[a-z]*(v1|runtime|protobuf)[A-Z]\w*\Z")


class DetEnum(str, enum.Enum):
    """A value on the wire; as text, what distinguishes it: ``COMPLETED`` for ``STATE_COMPLETED``."""

    def __str__(self) -> str:
        return self.name

    __format__ = enum.Enum.__format__


class Message(Dict[str, Any]):
    """A JSON object, whose fields are attributes, too."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(fields)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    @classmethod
    def from_json(cls, obj: Dict[str, Any]) -> Message:
        return _received(obj, "", cls)  # type: ignore[no-any-return]

    def to_json(self, omit_unset: bool = False) -> Dict[str, Any]:
        return _sent(self)  # type: ignore[no-any-return]


# What a field's text is a value of: by the field's name, and that of the object or list that it is in.
_ENUMERATIONS = {
    ("experiment", "state"): "experimentv1State",
    ("trial", "state"): "trialv1State",
    ("checkpoint", "state"): "checkpointv1State",
    ("job", "type"): "jobv1Type",
    ("resourcePool", "type"): "v1ResourcePoolType",
    ("resourcePool", "schedulerType"): "v1SchedulerType",
    ("workspace", "state"): "v1WorkspaceState",
    ("summary", "state"): "jobv1State",
}
_TASKS = ("task", "allocation", "command", "shell", "notebook", "tensorboard")
_ENUMERATIONS.update({(kind, "state"): "taskv1State" for kind in _TASKS})


def _received(value: Any, place: str, kind: Type[Message] = Message) -> Any:
    """``place``: the name of the object, or of the list, that it stands in."""
    if isinstance(value, list):
        return [_received(one, place) for one in value]
    if not isinstance(value, dict):
        return value
    message, here = kind(), place[:-1] if place.endswith("s") else place
    for name, field in value.items():
        enumeration = _ENUMERATIONS.get((here, name))
        message[name] = (
            _member(enumeration, field) if enumeration and isinstance(field, str) else _received(field, name)
        )
    return message


def _member(name: str, text: str) -> Any:
    try:
        return _enumeration(name)(text)
    except ValueError:  # of a later release
        return text


def _sent(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dict):
        return {name: _sent(one) for name, one in value.items()}
    return [_sent(one) for one in value] if isinstance(value, (list, tuple)) else value


def _call(name: str) -> Callable[..., Any]:
    method, path = name.split("_")[0].upper(), PATHS[name]

    def call(session: AnySession, *, body: Any = None, **parameters: Any) -> Any:
        from urllib.parse import quote

        inside = set(_IN_PATH.findall(path))
        if missing := sorted(inside - set(parameters)):
            raise TypeError(f"{name}() needs {', '.join(missing)}")
        target = _IN_PATH.sub(lambda match: quote(str(parameters[match[1]]), safe=""), path)
        query = {key.replace("_", "."): _sent(value) for key, value in parameters.items() if key not in inside}
        client = client_session(session)
        if name in STREAMS:
            return (_received(one, "") for one in client.stream(target, query))
        content = client.exchange(method, target, params=query, json=_sent(body))
        return _received(json.loads(content or b"{}"), "")

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"``{method} {path}``"
    return call


def _enumeration(name: str) -> Type[DetEnum]:
    enumeration: Type[DetEnum] = globals()[name] if name in globals() else __getattr__(name)
    return enumeration


def _enumerations() -> Iterator[str]:
    """One line for each."""
    return iter(re.sub(r"\n +", " ", VALUES).split("\n"))


def __getattr__(name: str) -> Any:
    attribute: Optional[Any] = None
    if name in PATHS:
        attribute = _call(name)
    elif line := next((line for line in _enumerations() if line.startswith(f"{name} ")), ""):
        _, prefix, *values = line.split()
        attribute = DetEnum(name, {value: prefix.replace("-", "") + value for value in values})  # type: ignore[call-overload]
    elif _CLASS.match(name):
        attribute = type(name, (Message,), {})
    if attribute is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    attribute.__module__ = __name__
    globals()[name] = attribute
    return attribute
