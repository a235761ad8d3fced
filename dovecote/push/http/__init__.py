"""Speak HTTP with endpoints."""
