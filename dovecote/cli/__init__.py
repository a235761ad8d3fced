"""The command `dovecote`."""
