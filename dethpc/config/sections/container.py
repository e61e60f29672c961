"""``pools.NAME.container`` of the site configuration: how a pool starts containers."""

from __future__ import annotations

import re
from typing import Annotated, Any, Optional

from pydantic import AfterValidator, BeforeValidator, Field

from dethpc.config.sections.environment import Images, images
from dethpc.config.sections.section import Section, absolute, mistaken, wrong
from dethpc.containers import RUNTIMES, Bind

NAMES = tuple(RUNTIMES)
"""The runtimes; "none" among them."""

_PATTERN = re.compile(r"[A-Za-z_*?][A-Za-z0-9_*?]*\Z")


def runtime(name: str) -> str:
    if name not in NAMES:
        raise wrong("one of " + ", ".join(NAMES))
    return name


def _bind(text: Any) -> Any:
    if isinstance(text, str):
        source, _, rest = text.partition(":")
        target, _, mode = (rest or source).partition(":")
        if source.startswith("/") and target.startswith("/") and mode in ("", "ro", "rw"):
            return text
    raise wrong("/path/on/node, /path/on/node:/path/inside, or the latter with :ro")


def _pattern(text: str) -> str:
    if _PATTERN.match(text) is None:
        raise wrong("the name of a variable, or a pattern such as NCCL_*")
    return text


class Container(Section):
    """One runtime of a pool, and what it is given on this site."""

    runtime: Annotated[str, AfterValidator(runtime)]
    binary: Optional[Annotated[str, AfterValidator(absolute)]] = None  # None: the usual one on the node's PATH
    options: list[str] = []  # further words for it
    binds: list[Annotated[str, BeforeValidator(_bind)]] = []
    variables: list[Annotated[str, AfterValidator(_pattern)]] = []  # of the node's that go along
    image: Annotated[Images, BeforeValidator(images)] = Images()  # where an experiment names none
    home: bool = True  # the user's home directory is seen inside

    def image_for(self, slot_type: str) -> str:
        """The usual image for slots of this type; "" where there is none."""
        return getattr(self.image, slot_type) or ""

    def own_binds(self) -> list[Bind]:
        """``binds``, taken apart."""
        binds = []
        for text in self.binds:
            source, _, rest = text.partition(":")
            target, _, mode = (rest or source).partition(":")
            binds.append(Bind(source, target, read_only=mode == "ro"))
        return binds


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


def _each_once(offered: list[Container]) -> list[Container]:
    names = [container.runtime for container in offered]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise mistaken(f"{twice} is there twice")
    return offered


Containers = Annotated[
    list[Container], BeforeValidator(_as_list), Field(max_length=len(NAMES)), AfterValidator(_each_once)
]
"""The first is the one that experiments get which do not choose."""
