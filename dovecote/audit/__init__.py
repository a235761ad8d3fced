"""Compare what was committed with what Kafka, inboxes and push have, without their code."""
