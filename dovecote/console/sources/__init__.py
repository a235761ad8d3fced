"""Ask Postgres, Kafka, the processes and push for what the console shows."""
