"""Test what a service writes: without a database, and in a transaction that is still open."""

from outbox.testing.recorded import Recorded, recorded
from outbox.testing.written import written, written_async

__all__ = ["Recorded", "recorded", "written", "written_async"]
