"""Name spans, make them and carry their context, if the process has an SDK of OpenTelemetry."""
