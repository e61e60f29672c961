"""Alembic's entry: migrations run on the connection, and in the transaction, of ``state.migrate``."""

from alembic import context

from dethpc.state.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite alters a column by copying the table
)
context.run_migrations()
