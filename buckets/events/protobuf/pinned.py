"""What the fields of Protobuf are known by while a schema changes, as a batch has it in its terms."""

from pydantic import BaseModel, ConfigDict, Field

Numbers = tuple[int, ...]
PinnedNumbers = tuple[tuple[str, tuple[tuple[str, Numbers], ...]], ...]
"""By full name of a message the numbers that its declared fields had, as one value that can be a key."""


class PinnedProtobuf(BaseModel):
    """By what values in Protobuf are read, beside what their own prefix says.

    Attributes:
        text: the schema of values without a prefix: a set of descriptors in base64.
        message: their type in it; None where it has only one.
        numbers: by the full name of a message, the numbers of declared fields under the names that they had when a job
            was started.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str | None = None
    message: str | None = None
    numbers: dict[str, dict[str, Numbers]] = Field(default_factory=dict)

    @property
    def pinned_numbers(self) -> PinnedNumbers:
        """The numbers as a value that can be a key."""
        return tuple((message, tuple(fields.items())) for message, fields in sorted(self.numbers.items()))
