"""Calls every function of the published bindings and prints what became of each. Runs in the published client's environment."""

import inspect
import json
import sys
from typing import Any

from determined.common import api
from determined.common.api import bindings


class Nothing:
    """Stands for any body or enumeration."""

    value = ""

    def to_json(self, omit_unset: bool = False) -> Any:
        return {}


def argument(parameter: inspect.Parameter) -> Any:
    said = parameter.annotation if isinstance(parameter.annotation, str) else parameter.annotation.__name__
    if parameter.name == "body":
        return {} if "Dict" in said else "x" if said == "str" else Nothing()
    return {"str": "1", "int": 1, "bool": False, "float": 1.0, "typing.Sequence[int]": [1]}.get(said, Nothing())


def outcome(name: str, session: Any) -> Any:
    """None where it was answered as its class wants it; else [status, the master's words]."""
    function = getattr(bindings, name)
    wanted = dict(list(inspect.signature(function).parameters.items())[1:])
    given = {key: argument(one) for key, one in wanted.items() if one.default is inspect.Parameter.empty}
    if "timeoutSeconds" in wanted:
        given["timeoutSeconds"] = 0  # it would wait
    try:
        answer = function(session, **given)
        if inspect.isgenerator(answer):
            next(answer, None)
            answer.close()
        return None
    except api.errors.NotFoundException as error:
        return [404, str(error)]
    except api.errors.UnauthenticatedException as error:
        return [401, str(error)]
    except api.errors.ForbiddenException as error:
        return [403, str(error)]
    except (api.errors.APIException, bindings.APIHttpError) as error:
        response = getattr(error, "response", None)
        return [response.status_code if response is not None else error.status_code, str(error)]
    except Exception as error:
        return [0, f"{type(error).__name__}: {error}"]


def main(url: str, user: str, token: str) -> None:
    session = api.Session(url, user, token, None)
    order = ("get", "put", "patch", "post", "delete")
    names = [name for name in dir(bindings) if name.split("_")[0] in order and "_" in name]
    names.sort(key=lambda name: (order.index(name.split("_")[0]), name))
    print(json.dumps({name: outcome(name, session) for name in names}))


main(*sys.argv[1:])
