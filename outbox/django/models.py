"""No models; Django signals a flush only to apps that have this module."""
