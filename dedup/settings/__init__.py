"""What a settings file says, checked."""
