"""Alembic's entry. It never connects by itself: `store/migrate.py` hands it a connection."""

from __future__ import annotations

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=context.config.attributes.get("metadata"),
    # Both databases undo DDL with the transaction, so a killed step leaves nothing behind.
    transactional_ddl=True,
    transaction_per_migration=True,
    render_as_batch=context.config.attributes.get("batch", True),
    compare_type=True,
    render_item=context.config.attributes.get("render_item"),
)

with context.begin_transaction():
    context.run_migrations()
