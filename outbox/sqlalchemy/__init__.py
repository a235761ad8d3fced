"""Events that a SQLAlchemy session keeps, and writes with its own rows."""

from outbox.sqlalchemy.recording import record

__all__ = ["record"]
