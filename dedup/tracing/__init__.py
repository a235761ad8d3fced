"""Make the spans of a consumer: what it polls, handles, skips, sets aside and commits."""
