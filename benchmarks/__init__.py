"""Benchmarks, one command each: real servers, one JSON line per measurement."""
