"""One-shot programs of operators."""
