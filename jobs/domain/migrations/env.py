"""Alembic's entry: the engine comes from `jobs.domain.db`, never from an ini file."""

from alembic import context

from jobs.domain import diagnosis_models, market_models, models, search_models  # noqa: F401 - each brings its tables
from jobs.domain.tables import Base

engine = context.config.attributes["engine"]

with engine.connect() as connection:
    context.configure(connection=connection, target_metadata=Base.metadata, render_as_batch=True, compare_type=True)
    with context.begin_transaction():
        context.run_migrations()
    connection.commit()
