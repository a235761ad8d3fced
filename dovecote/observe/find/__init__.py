"""Find the life of one event, or of the events of a key, over all parts."""

from dovecote.observe.find.finding import find
from dovecote.observe.find.rules.life import Life, LookedAt, One, PartFailure, Standing, Step
from dovecote.observe.find.rules.query import Query

__all__ = ["Life", "LookedAt", "One", "PartFailure", "Query", "Standing", "Step", "find"]
