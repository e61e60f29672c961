"""The base of all wire models: camelCase names, times in RFC 3339, numbers that JSON can represent."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timezone
from enum import Enum
from functools import lru_cache
from math import isfinite
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainSerializer
from pydantic.alias_generators import to_camel
from pydantic_core import to_json

from dethpc.config.secrets import masked_text
from dethpc.config.sections.section import DEFER_BUILD
from dethpc.config.wording import show
from dethpc.domain.reports import MOST_LEVELS, too_deep
from dethpc.domain.secrets import masked
from dethpc.domain.states import CheckpointState, State
from dethpc.domain.text.not_finite import spelled
from dethpc.errors import Refused
from dethpc.state.queries import Page

T = TypeVar("T")


class Wire(BaseModel):
    """Python names inside, camelCase on the wire; unknown fields of a request are ignored, as Determined's master does."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", defer_build=DEFER_BUILD)


def plain(value: Any, levels: int = MOST_LEVELS) -> Any:
    """``value`` with NaN and infinities spelled as protobuf's JSON spells them; JSON itself has no such numbers. Nor has UTF-8
    lone surrogates, as in a name that Python made of bytes: "?" stands for each.

    What lies more than ``levels`` deep is left out: an earlier release took it, and no answer could be made of it.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, float):
        return spelled(value)
    if not levels and isinstance(value, (dict, list, tuple)):
        return TOO_DEEP
    if isinstance(value, dict):
        # Most of what is in it needs no call of its own: a page of experiments has thousands of values.
        return {
            (key if type(key) is str and key.isascii() else encodable(str(key))): (
                item
                if (kind := type(item)) in _PLAIN
                or (kind is float and isfinite(item))
                or (kind is str and item.isascii())
                else plain(item, levels - 1)
            )
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [plain(item, levels - 1) for item in value]
    return value


_PLAIN = frozenset({int, bool, type(None)})


def encodable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _spelled(text: str) -> str:
    if encodable(text) != text:
        raise ValueError("it holds characters that UTF-8 cannot spell")
    return text


Given = Annotated[str, AfterValidator(_spelled)]
"""Text that a request brings to be kept."""

UserText = Annotated[str, PlainSerializer(encodable, when_used="json")]
"""Text of a user's in an answer: what an earlier release took spoils none."""

TOO_DEEP = f"(more than {MOST_LEVELS} levels deep: not shown)"

Plain = Annotated[Any, PlainSerializer(lambda value: plain(value), when_used="json")]
"""Any JSON value."""


def _shallow(value: Any) -> Any:
    if too_deep(value):
        raise ValueError(f"it is nested more than {MOST_LEVELS} levels deep")
    return value


Shallow = AfterValidator(_shallow)
"""Of JSON that a request brings and an answer may show."""


class Shown(dict[str, Any]):
    """A configuration whose secrets are hidden already: the checkpoints of a page share it."""

    @classmethod
    def of(cls, config: dict[str, Any]) -> Shown:
        return cls(_without_secrets(config))


def _without_secrets(config: Any) -> Any:
    """Those of the last pages are kept: a list is asked for again and again, and hardly a configuration in it ever changes."""
    try:
        text = to_json(config)
    except ValueError:  # too deep, or text that UTF-8 cannot spell
        text = None
    return masked(plain(config)) if text is None or len(text) > _LARGEST_KEPT else _without_secrets_of(text)


@lru_cache(maxsize=256)
def _without_secrets_of(text: bytes) -> Any:
    return masked(plain(json.loads(text)))


def _shown(config: Any) -> Any:
    return config if isinstance(config, Shown) else _without_secrets(config)


_LARGEST_KEPT = 8 << 10  # bytes


MaskedConfig = Annotated[Any, PlainSerializer(_shown, when_used="json")]
MaskedText = Annotated[str, PlainSerializer(masked_text, when_used="json")]
"""A configuration, and one as it was written, with their secrets hidden."""

Float = Annotated[float, PlainSerializer(lambda value: plain(value), return_type=Any, when_used="json")]


@lru_cache(maxsize=4096)
def time(at: float) -> str:
    """Seconds since the epoch as RFC 3339 in UTC. Those of the last pages are kept, as their configurations are."""
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")


def time_or_none(at: float | None) -> str | None:
    return None if at is None else time(at)


def state(value: Enum) -> str:
    return f"STATE_{value.value}"


class Pagination(Wire):
    """The slice of a list that an answer holds. ``end_index`` is the next ``offset``."""

    offset: int
    limit: int
    start_index: int
    end_index: int
    total: int

    @classmethod
    def of(cls, total: int, offset: int, limit: int, count: int) -> Pagination:
        return cls(offset=offset, limit=limit, start_index=offset, end_index=offset + count, total=total)


def page(offset: int, limit: int) -> Page:
    """A negative offset counts from the end; a limit of 0 or -1 is no limit; -2 asks for the pagination alone."""
    return Page(offset, {-2: 0, 0: None, -1: None}.get(limit, limit))


def paged(items: Sequence[T], offset: int, limit: int) -> tuple[list[T], Pagination]:
    """A page of a list that is in memory."""
    requested_page = page(offset, limit)
    page_items = list(requested_page.of(items))
    return page_items, Pagination.of(len(items), requested_page.begin(len(items)), limit, len(page_items))


STATES = frozenset({*(state.value for state in State), "QUEUED", "PULLING", "STARTING", "RUNNING"})
"""What lists of experiments and trials are filtered by: ACTIVE is told apart, too."""

CHECKPOINT_STATES = frozenset(state.value for state in CheckpointState)

JOB_STATES = frozenset({"QUEUED", "SCHEDULED", "SCHEDULED_BACKFILLED"})


def names_of_states(requested_states: Iterable[str], all_states: Collection[str] = STATES) -> set[str]:
    """``STATE_X`` and plain ``X`` alike; the unspecified state is no wish. Raises Refused for one that there is not: what it was
    meant to leave out must be neither shown nor acted upon."""
    names = {name.removeprefix("STATE_") for name in requested_states} - {"UNSPECIFIED"}
    if unknown := sorted(names - set(all_states)):
        raise Refused(f"states: there is no state {show(unknown[0])}, only {', '.join(sorted(all_states))}")
    return names
