"""``images`` of the site configuration: where images of containers come from and are kept."""

from __future__ import annotations

import re
from typing import Annotated, Any, Optional

from pydantic import AfterValidator, BeforeValidator, Field

from dethpc.config.sections.section import Section, absolute, wrong
from dethpc.config.wording import show

_PLACE = re.compile(r"[A-Za-z0-9\[\]][A-Za-z0-9.\[\]:-]*(/[a-z0-9._/-]+)?")


def _place(text: str) -> str:
    if _PLACE.fullmatch(text) is None:
        raise wrong("HOST, HOST:PORT or HOST/PREFIX, without https://", value=show(text))
    return text


def _several(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Place = Annotated[str, AfterValidator(_place)]
Path = Annotated[str, AfterValidator(absolute)]


class ImageCache(Section):
    cache: Optional[Path] = None  # a folder on shared_fs; None: images in DETHPC_HOME
    pool: Optional[Annotated[str, Field(min_length=1)]] = (
        None  # whose nodes pull; None: the pool of who needs the image
    )
    mirrors: dict[str, Annotated[list[Place], BeforeValidator(_several)]] = {}  # by registry, asked before it
    insecure: list[Place] = []  # registries that speak http
    auth_file: Optional[Path] = None  # as Docker's config.json; None: the user's own
    scratch: Optional[Path] = None  # a folder on the node in which images are unpacked; None: in the cache
