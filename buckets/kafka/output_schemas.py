"""The schemas of results in a registry: each is registered under the subject of its topic, and has a number there."""

from collections.abc import Mapping

from buckets.checkpoint.writer_schemas import AVRO, PROTOBUF
from buckets.config.output import OutputSettings
from buckets.errors import Outage
from buckets.kafka.registry import Registry, RegistryAway
from buckets.outputs.binary_messages import BinaryFormat, schema_text

KINDS: Mapping[str, str] = {"avro": AVRO, "protobuf": PROTOBUF}
"""How registries name the formats of results."""


class OutputSchemas:
    """The numbers of the schemas of a job's outputs, asked for when they are first needed."""

    def __init__(self, registry: Registry, output: OutputSettings, written_in: BinaryFormat) -> None:
        """Ask nothing yet.

        Args:
            registry: where they are registered.
            output: the outputs and their topics.
            written_in: the format of their messages.
        """
        self._registry = registry
        self._output = output
        self._written_in = written_in
        self._prefixes: dict[str, bytes] = {}

    def register(self) -> None:
        """Register the schemas of all outputs in use that are not yet.

        Raises:
            Outage: the registry does not answer.
            BucketsError: it refuses one of them, or answers something else.
        """
        for output in self._output.topics_in_use():
            self.prefix(output)

    def prefix(self, output: str) -> bytes:
        """Return what stands before each message of an output, the number of its schema in it. Raises likewise."""
        if output not in self._prefixes:
            subject, text = f"{self._output.topic(output)}-value", schema_text(output, self._written_in)
            try:
                number = self._registry.register(subject, KINDS[self._written_in], text)
            except RegistryAway as error:
                raise Outage(error.message) from None
            self._prefixes[output] = b"\0" + number.to_bytes(4)
        return self._prefixes[output]


def check_compatible(registry: Registry, output: OutputSettings, written_in: BinaryFormat) -> None:
    """See that the registry would take the schemas of all outputs in use, without registering any.

    Raises:
        BucketsError: it would refuse one, or does not answer.
    """
    for name, topic in output.topics_in_use().items():
        registry.check_compatible(f"{topic}-value", KINDS[written_in], schema_text(name, written_in))
