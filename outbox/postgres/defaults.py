"""Names that are known without a database, and without what connects to one."""

DEFAULT_SCHEMA = "outbox"
"""The schema in which an outbox is installed unless another one is named."""
