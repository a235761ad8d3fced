"""Append events in the caller's transaction, whichever library its connection is of."""
