"""A shop: orders are placed, paid and cancelled over HTTP; paid ones are shipped."""
