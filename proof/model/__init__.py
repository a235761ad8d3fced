"""The relay's protocol in a world of values: crashed, delayed and cut at every step, by seed."""
