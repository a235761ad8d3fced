"""See, requeue and drop what was given up: dead letters of every part, and parked events."""
