"""The independent check: it computes the expected results without any code of the pipeline."""
