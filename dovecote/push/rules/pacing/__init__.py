"""How fast an endpoint may be asked, and when to leave it alone."""
