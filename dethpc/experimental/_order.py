"""Orders of lists, as the wire names them."""

from __future__ import annotations

import enum


class OrderBy(enum.Enum):
    """Ascending or descending."""

    ASCENDING = "ORDER_BY_ASC"
    ASC = "ORDER_BY_ASC"
    DESCENDING = "ORDER_BY_DESC"
    DESC = "ORDER_BY_DESC"
