"""What every long-running process of ours needs."""
