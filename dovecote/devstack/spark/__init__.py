"""A standalone cluster of Spark, and an S3 for its checkpoints."""
