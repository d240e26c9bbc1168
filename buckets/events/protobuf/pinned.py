"""What the fields of Protobuf are known by while a schema changes, as a batch has it in its terms."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:  # every configuration has one of these, and few read Protobuf
    from google.protobuf.descriptor import Descriptor, FileDescriptor

    from buckets.events.protobuf.decoder import PinnedNumbers
    from buckets.events.protobuf.wanted import WantedField


class PinnedProtobuf(BaseModel):
    """By what values in Protobuf are read, beside what their own prefix says.

    Attributes:
        text: the schema of values without a prefix: a `.proto` file, or a set of descriptors in base64.
        message: their type in it; None where it has only one.
        numbers: by the full name of a message, the numbers of declared fields under the names that they had when a job
            was started.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str | None = None
    message: str | None = None
    numbers: dict[str, dict[str, tuple[int, ...]]] = Field(default_factory=dict)

    @property
    def pinned_numbers(self) -> "PinnedNumbers":
        """The numbers as a value that can be a key."""
        return tuple((message, tuple(fields.items())) for message, fields in sorted(self.numbers.items()))

    def fields_of(self, message: "Descriptor", names: Sequence[str]) -> dict[str, "WantedField"]:
        """Return those declared fields that a message has, by their names or by their numbers."""
        from buckets.events.protobuf.wanted import wanted_fields

        fields = wanted_fields(message, names, self.numbers.get(message.full_name, {}))
        return {name: field for name, field in zip(names, fields, strict=True) if field.way or field.fault}

    def with_schema(self, file: "FileDescriptor", names: Sequence[str]) -> "PinnedProtobuf":
        """Return the same with the numbers that declared fields have in a newer schema."""
        from buckets.events.protobuf.proto_schema import messages_of
        from buckets.events.protobuf.wanted import field_numbers

        numbers = dict(self.numbers)
        for message in messages_of(file):
            found = field_numbers(message, names)
            if found:
                numbers[message.full_name] = numbers.get(message.full_name, {}) | found
        return self.model_copy(update={"numbers": numbers})
