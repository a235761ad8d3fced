"""Run several processes of one part under one parent, which answers for all of them."""
