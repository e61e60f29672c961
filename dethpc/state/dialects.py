"""What differs between the databases in SQL; the package of one that is not used is not loaded."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Table


def insert(table: Table, dialect: str) -> Any:
    """An INSERT that can say what happens on a conflict."""
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)
