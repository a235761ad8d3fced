"""The outbox in a Django project: an app with migrations."""
