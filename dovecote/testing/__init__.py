"""Give a service's tests real servers, databases, topics and what was written, by pytest's fixtures."""
