"""The state database: tables that mirror the domain's facts, migrations, and the store with its one writer."""

from dethpc.state.store import SqlStore, open_store, reading
from dethpc.state.summaries import Summary

__all__ = ["SqlStore", "Summary", "open_store", "reading"]
