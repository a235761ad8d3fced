"""The programs that Spark runs."""
