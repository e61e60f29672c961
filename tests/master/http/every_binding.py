"""Calls every function of the published bindings with real arguments, and prints what became of each.

Runs in the published client's environment: URL, user, token and the arguments as JSON. Bodies are made from the bindings' own
classes: their required fields, and the optional ones that ``fields`` names. What comes back is parsed by the bindings.
"""

import inspect
import itertools
import json
import re
import sys
import typing
from typing import Any

import requests

from determined.common import api
from determined.common.api import bindings

ORDER = ("get", "put", "patch", "post", "delete")
MOST_ITEMS = 20  # of a stream


class Arguments:
    """``fields``: values by the name of a parameter or of a field of a body. ``of``: those of one function, which count before."""

    def __init__(self, fields: dict[str, Any], of: dict[str, dict[str, Any]]) -> None:
        self.fields, self.of = fields, of

    def make(self, function: str) -> dict[str, Any]:
        values = {**self.fields, **self.of.get(function, {})}
        parameters = list(inspect.signature(getattr(bindings, function)).parameters.values())[1:]
        own = self.of.get(function, {})
        return {
            one.name: self._value(one.name, one.annotation, values)
            for one in parameters
            if one.default is inspect.Parameter.empty or one.name in own or one.name == "timeoutSeconds"
        }

    def _value(self, name: str, annotation: Any, values: dict[str, Any]) -> Any:
        kind = kind_of(annotation)
        value = values.get(name.rpartition("_")[2] if name not in values else name)
        if isinstance(kind, type) and issubclass(kind, bindings.DetEnum):
            return kind(value) if value is not None else list(kind)[-1]
        if isinstance(kind, type) and issubclass(kind, bindings.Printable):
            return self._object(kind, {**values, **value} if isinstance(value, dict) else values)
        origin, of = typing.get_origin(kind), typing.get_args(kind)
        if origin is not None and issubclass(origin, typing.Sequence):
            several = value if isinstance(value, list) else [value]
            return [self._value(name, of[0], values if one is None else {**values, name: one}) for one in several]
        if value is not None:
            return value
        if origin is dict:
            return {}
        return {str: "1", int: 1, bool: False, float: 1.0}[kind]

    def _object(self, kind: Any, values: dict[str, Any]) -> Any:
        parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
        chosen = [
            one for one in parameters if one.default is inspect.Parameter.empty or values.get(one.name) is not None
        ]
        return kind(**{one.name: self._value(one.name, one.annotation, values) for one in chosen})


def kind_of(annotation: Any) -> Any:
    """The type of a parameter of the bindings, without what stands for an absent value."""
    if isinstance(annotation, str):
        annotation = eval(annotation, {**vars(bindings), "typing": typing})
    while typing.get_origin(annotation) is typing.Union:
        annotation = typing.get_args(annotation)[0]
        if isinstance(annotation, typing.ForwardRef):
            annotation = kind_of(annotation.__forward_arg__)
    if typing.get_origin(annotation) is not None:
        inner = typing.get_args(annotation)
        if inner and isinstance(inner[0], typing.ForwardRef):
            return typing.Sequence[kind_of(inner[0].__forward_arg__)]  # type: ignore[misc]
    return annotation


class Recorder:
    """The last request that was sent, and its answer."""

    def __init__(self) -> None:
        self.request = self.status = self.message = None
        send = requests.Session.send

        def recorded(session: Any, request: Any, **options: Any) -> Any:
            answer = send(session, request, **options)
            self.request, self.status = [request.method, request.path_url], answer.status_code
            if not answer.ok:
                self.message = answer.text
            return answer

        requests.Session.send = recorded  # type: ignore[method-assign]

    def outcome(self, session: Any, function: str, arguments: Arguments) -> dict[str, Any]:
        self.request = self.status = self.message = error = None
        try:
            answer = getattr(bindings, function)(session, **arguments.make(function))
            if inspect.isgenerator(answer):
                list(itertools.islice(answer, MOST_ITEMS))
                answer.close()
        except (api.errors.APIException, api.errors.UnauthenticatedException, bindings.APIHttpError) as failure:
            error = None if self.message is not None else f"{type(failure).__name__}: {failure}"
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
        return {"request": self.request, "status": self.status, "message": self.message, "error": error}


def functions() -> list[str]:
    names = [name for name in dir(bindings) if re.match(f"({'|'.join(ORDER)})_", name)]
    return sorted(names, key=lambda name: (name == "post_Logout", ORDER.index(name.split("_")[0]), name))


def main(url: str, user: str, token: str, text: str) -> None:
    session, recorder, arguments = api.Session(url, user, token, None), Recorder(), Arguments(**json.loads(text))
    print(json.dumps({name: recorder.outcome(session, name, arguments) for name in functions()}))


main(*sys.argv[1:])
