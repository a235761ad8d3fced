"""Write what a partition comes to, in one transaction with a marker."""
