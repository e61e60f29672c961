"""Lists that come page by page."""

from __future__ import annotations

import enum
from typing import Any, Callable, Iterator


class PageOpts(str, enum.Enum):
    single = "1"
    all = "all"


def read_paginated(
    get_with_offset: Callable[[int], Any], offset: int = 0, pages: PageOpts = PageOpts.all
) -> Iterator[Any]:
    """The answers from ``offset`` on, each with a ``pagination``, until the last."""
    while True:
        answer = get_with_offset(offset)
        yield answer
        end = answer.pagination.endIndex
        if pages is PageOpts.single or end >= answer.pagination.total or end <= offset:
            return
        offset = end
