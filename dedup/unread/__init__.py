"""Notice records that the client cannot read, and step over those that an operator names."""
