"""Settings of property tests: a number of examples, never the clock of a busy machine."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "dovecote", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("dovecote")
