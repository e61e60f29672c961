"""The state database: tables that mirror the domain's facts, migrations, and the store with its one writer."""

from dethpc.state.beside import beside
from dethpc.state.store import SqlStore, absent, open_store, reading
from dethpc.state.tables import Summary

__all__ = ["SqlStore", "Summary", "absent", "beside", "open_store", "reading"]
