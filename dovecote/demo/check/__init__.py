"""The independent check: what must have come out, computed without any code of the pipeline."""
