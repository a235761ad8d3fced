"""Give a service's tests real servers, databases and topics, as fixtures of pytest."""
