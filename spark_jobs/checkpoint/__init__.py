"""Keep what a query needs between its runs, and say whether it may go on."""
