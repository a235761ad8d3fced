"""The proof of Spark jobs: drivers, workers and executors are killed on a cluster; then count."""
