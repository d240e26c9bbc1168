"""How an event is identified: by a field of its own, or by an id that is made of what it says or where it stands."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

FieldName = Annotated[str, Field(min_length=1, max_length=200)]
MADE_ID = "event_id"  # What an id that is made is called where its name is left out
ROW_IDS = "event_id: {row: true} is for files and Python tables; take event_id: {hash: [FIELD]}, or name a field"
"""What to do where rows have no number that stays."""


class EventId(BaseModel):
    """The field that identifies an event, or how its id is made where the data have none.

    Attributes:
        field: the name of the field. An id that is made is called so in outputs, `event_id` if it is left out.
        hash: makes the id of the values of these fields: two events that agree in all of them are one.
        row: makes the id of the file's name and the number of the row in it; for files and Python tables.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    field: FieldName
    hash: Annotated[tuple[FieldName, ...], Field(max_length=100)] = ()
    row: bool = False

    @model_validator(mode="before")
    @classmethod
    def _may_be_a_name(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"field": value}
        if not isinstance(value, dict):
            return value
        is_made = value.get("hash") or value.get("row")
        if not is_made and "field" not in value and value.keys() <= cls.model_fields.keys():
            message = "names no field; write one, or {hash: [FIELD]} or {row: true} where events have no id"
            raise ValueError(message)
        return {"field": MADE_ID} | value if is_made else value

    @model_validator(mode="after")
    def _is_made_in_one_way(self) -> "EventId":
        if self.hash and self.row:
            message = "is made of fields (hash) or of a place (row); leave one of them out"
            raise ValueError(message)
        for name in self.hash:
            if self.hash.count(name) > 1:
                message = f"hash: {name!r} is there twice"
                raise ValueError(message)
        return self

    @property
    def is_made(self) -> bool:
        """Whether the data have no id, and one is made when they are read."""
        return bool(self.hash) or self.row

    @property
    def names(self) -> tuple[str, ...]:
        """The fields of which an id follows; none of one that follows of the row."""
        return () if self.row else self.hash or (self.field,)

    @property
    def text(self) -> str:
        """The field, and how its values are made, in words."""
        made = f" (hash of {', '.join(self.hash)})" if self.hash else " (file and row)" if self.row else ""
        return f"{self.field}{made}"

    def renamed(self, names: Mapping[str, str]) -> "EventId":
        """Return the same under new names of fields."""
        hashed = tuple(names.get(name, name) for name in self.hash)
        return self.model_copy(update={"field": names.get(self.field, self.field), "hash": hashed})
