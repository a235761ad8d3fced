"""Real servers and relays, disturbed for as long as one likes, then counted: `make proof`."""
