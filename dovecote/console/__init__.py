"""One page that shows every part, its troubles and its dead letters."""
