"""When an aggregate is due."""
