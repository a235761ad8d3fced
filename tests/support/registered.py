"""Schemas and values of a registry."""

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "order", "type": "int"}, {"name": "state", "type": "string"}],
}


JSON_SCHEMA = {
    "title": "Order",
    "type": "object",
    "properties": {"order": {"type": "integer"}, "state": {"type": "string"}},
    "required": ["order"],
}


VALUE = {"order": 42, "state": "placed"}


ID = 1_000
