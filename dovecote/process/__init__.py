"""Parts of every long-running process: settings, HTTP, logs, memory."""
