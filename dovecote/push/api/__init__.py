"""The API and the page that manage subscriptions."""
