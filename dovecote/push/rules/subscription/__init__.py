"""What a subscription may say."""
