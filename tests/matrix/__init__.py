"""Run the tests that matter with old and new servers, Pythons and packages: `make matrix`."""
