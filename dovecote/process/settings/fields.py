"""Facts about the fields of a model of settings."""

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a model by their names in a file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def is_open(field: FieldInfo) -> bool:
    """Return whether a table may have any name, as Kafka's properties do."""
    return (field.json_schema_extra or {}) == {"open": True}


def table_of(field: FieldInfo) -> type[BaseModel] | None:
    """Return the model of a field that is a table of settings."""
    inner = field.annotation
    return inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None
