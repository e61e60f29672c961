"""What the sections of a configuration have in common."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Union

from pydantic import (
    VERSION,
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationInfo,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import SerializerFunctionWrapHandler

from dethpc.config.wording import show
from dethpc.domain.trial_config import UNITS

STORED = {"stored": True}
"""The validation context of what a database kept: fields that this release does not know are left out, not refused, and bounds that
an earlier one had not are none. A master that took a stored configuration for wrong could not start."""


DEFER_BUILD = tuple(int(part) for part in VERSION.split(".")[:2]) >= (2, 14)
"""Whether checks are made when a section is first checked, and not when its module is imported: what starts waits for none of them.
An older pydantic lets two threads make the same one at a time, and one of them meets it half made."""


class Section(BaseModel):
    """A mapping with known fields. An unknown one is an error; null means the default, as in Determined."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, defer_build=DEFER_BUILD)

    omitted: ClassVar[frozenset[str]] = frozenset()
    """Fields that the effective configuration leaves out while they are null."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_default(cls, data: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, dict):
            return data
        stored, fields = info.context is STORED, cls.model_fields
        return {key: value for key, value in data.items() if (not stored if key not in fields else value is not None)}

    @model_serializer(mode="wrap")
    def _leave_out(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        whole: dict[str, Any] = handler(self)
        return {key: value for key, value in whole.items() if value is not None or key not in self.omitted}


def wrong(allowed: str, *, field: str = "", value: str = "", hint: str = "") -> PydanticCustomError:
    """The error that a validator raises of a value. ``field`` names the culprit below the validated value, ``value`` what stands
    there."""
    context = {"allowed": allowed, "field": field, "value": value, "hint": hint}
    return PydanticCustomError("wrong", "must be {allowed}", context)


def mistaken(message: str, *, field: str = "") -> PydanticCustomError:
    """The error that a validator raises where values do not go together, or one may not be there. ``message`` goes after the name
    of the field."""
    return PydanticCustomError("mistaken", "{message}", {"message": message, "field": field})


def _integral(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def at_most(most: int) -> AfterValidator:
    """A bound on a number, or on the length of a list. What a database kept of an earlier release may be beyond it."""

    def check(value: Any, info: ValidationInfo) -> Any:
        many = isinstance(value, list)
        if (len(value) if many else value) > most and info.context is not STORED:
            raise wrong(f"at most {most:,}")
        return value

    return AfterValidator(check)


LARGEST = 2**63 - 1
"""The largest whole number that a database holds."""


def _in_64_bits(value: int, info: ValidationInfo) -> int:
    if not -LARGEST <= value <= LARGEST and info.context is not STORED:
        raise wrong("a whole number between -2**63 and 2**63")
    return value


Whole = Annotated[int, BeforeValidator(_integral), AfterValidator(_in_64_bits)]
"""A whole number; ``1e4`` is one too, ``true`` and ``"3"`` are not."""


def _length(value: Any, least: int, info: ValidationInfo) -> Any:
    form = f"one of {{batches: N}}, {{records: N}}, {{epochs: N}}, or N alone, with N >= {least} and N < 2**63"
    number = value
    if isinstance(value, dict):
        if len(value) != 1 or next(iter(value)) not in UNITS:
            raise wrong(form, value=f"a mapping with {', '.join(map(str, value)) or 'nothing'}")
        number = next(iter(value.values()))
    number = _integral(number)
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise wrong(form, value=show(number))
    if number > LARGEST and info.context is not STORED:
        raise wrong(form, value=show(number))
    return {next(iter(value)): number} if isinstance(value, dict) else number


Length = Annotated[Union[int, dict[str, int]], BeforeValidator(lambda value, info: _length(value, 0, info))]
"""A duration of training: a mapping of one unit to a count, or a count alone."""

PositiveLength = Annotated[Union[int, dict[str, int]], BeforeValidator(lambda value, info: _length(value, 1, info))]


def absolute(path: str) -> str:
    if not path.startswith("/"):
        raise wrong("an absolute path")
    return path
