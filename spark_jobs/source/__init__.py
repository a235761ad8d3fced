"""Plan ranges of offsets on the driver, and read them in the tasks."""
