"""Operators that remember: each decides, and knows neither Spark nor Kafka."""
