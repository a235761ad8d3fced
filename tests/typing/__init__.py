"""Programs as users write them: mypy and pyright accept them, and tests run them."""
