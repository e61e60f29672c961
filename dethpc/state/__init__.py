"""The state database: tables that mirror the domain's facts, migrations, and the store with its one writer."""

from dethpc.state.shadow import shadow
from dethpc.state.store import SqlStore, absent, open_store, reading
from dethpc.state.tables import Summary

__all__ = ["SqlStore", "Summary", "absent", "shadow", "open_store", "reading"]
