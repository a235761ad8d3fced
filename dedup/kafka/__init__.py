"""Poll, commit, claim and write to topics, on behalf of a consumer."""
