"""What a query keeps between its runs, and whether a run may go on with it."""
