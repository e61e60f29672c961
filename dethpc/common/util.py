"""Functions that published scripts import from ``determined.common.util``."""

from __future__ import annotations

import datetime
import functools
import os
import pathlib
import random
import re
import sys
import time
import warnings
from typing import Any, Callable, Iterator, Optional, Sequence, Tuple, TypeVar, Union

from dethpc.domain.text.times import moment

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])

# Groups of metrics, by the names that published training code reads here.
_LEGACY_TRAINING = "training"
_LEGACY_VALIDATION = "validation"
_INFERENCE = "inference"


def chunks(lst: Union[str, Sequence[Any]], chunk_size: int) -> Iterator[Any]:
    """``lst`` in pieces of ``chunk_size``; the last may be shorter."""
    return (lst[begin : begin + chunk_size] for begin in range(0, len(lst), chunk_size))


def sizeof_fmt(val: Union[int, float]) -> str:
    """A number of bytes for people: ``1.5KB``."""
    size = float(val)
    for unit in ("", "K", "M", "G", "T", "P", "E", "Z"):
        if abs(size) < 1024:
            return f"{size:3.1f}{unit}B"
        size /= 1024
    return f"{size:.1f}YB"


def debug_mode() -> bool:
    return os.environ.get("DET_DEBUG", "").lower() in ("true", "1", "yes")


def preserve_random_state(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn``, which then leaves Python's random generator as it found it."""

    @functools.wraps(fn)
    def call(*arg: Any, **kwarg: Any) -> Any:
        state = random.getstate()
        try:
            return fn(*arg, **kwarg)
        finally:
            random.setstate(state)

    return call


def yaml_safe_dump(data: Any, stream: Any = None, default_flow_style: Optional[bool] = None) -> Any:
    """``data`` as YAML: to ``stream``, or without one the text. Raises ImportError where PyYAML is not installed."""
    import yaml

    return yaml.safe_dump(data, stream, default_flow_style=bool(default_flow_style))


def yaml_safe_load(f: Any) -> Any:
    """What the YAML in a file or a text says. Raises ImportError where PyYAML is not installed."""
    import yaml

    return yaml.safe_load(f)


def safe_load_yaml_with_exceptions(yaml_file: Any) -> Any:
    """``yaml_safe_load``; a mistake is printed, and ends the program with 1."""
    import yaml

    try:
        return yaml.safe_load(yaml_file)
    except yaml.YAMLError as error:
        print(f"Error: invalid experiment config file.\n{error}")
        sys.exit(1)


def get_config_path() -> pathlib.Path:
    """Where Determined's clients keep what they remember."""
    if chosen := os.environ.get("DET_DEBUG_CONFIG_PATH"):
        return pathlib.Path(chosen)
    base = os.environ.get("XDG_CONFIG_HOME")
    return (pathlib.Path(base) if base else pathlib.Path.home() / ".config") / "determined"


def parse_protobuf_timestamp(ts: str) -> datetime.datetime:
    """A time as the master writes it, without its fraction of a second."""
    return moment(re.sub(r"\.\d*", "", ts))


def is_protobuf_timestamp(ts: str) -> bool:
    """Whether it is a time in UTC as the master takes it: ``2026-11-21T10:59:54Z``, with or without microseconds."""
    for form in ("%Y-%m-%dT%H:%M:%S.%fZ", "%Y-%m-%dT%H:%M:%SZ"):
        try:
            datetime.datetime.strptime(ts, form)
        except (TypeError, ValueError):
            continue
        return True
    return False


def wait_for(predicate: Callable[[], Tuple[bool, T]], timeout: int = 60, interval: float = 0.1) -> T:
    """Ask ``predicate`` every ``interval`` seconds until it says (True, result), and return the result. Raises TimeoutError."""
    until = time.monotonic() + timeout
    while True:
        done, result = predicate()
        if done:
            return result
        if time.monotonic() > until:
            raise TimeoutError(f"it has not come true within {timeout} s")
        time.sleep(interval)


def deprecated(message: Optional[str] = None) -> Callable[[Function], Function]:
    """A decorator: calling the function warns, with ``message``, that it will go."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            text = f"{function.__name__} is deprecated and will be removed in a future version."
            warnings.warn(f"{text} {message}." if message else text, DeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    return decorate


def strtobool(val: str) -> bool:
    """Whether a text means yes: any but an empty one, n, no, f, false, off and 0."""
    return val.lower() not in ("", "n", "no", "f", "false", "off", "0")
