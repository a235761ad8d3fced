"""The languages of a step's file."""
