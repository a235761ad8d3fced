"""One command each: real servers, one JSON line a measurement."""
