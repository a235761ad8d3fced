"""Decide what is sent, when, and what an answer means; touch nothing."""
