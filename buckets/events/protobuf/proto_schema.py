"""A Protobuf schema with what it imports, resolved by the vendor's pool of descriptors."""

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from buckets.events.protobuf.proto_text import read_proto
from buckets.events.protobuf.proto_tokens import ProtobufSchemaError
from buckets.validation import did_you_mean

_MODULES = (any_pb2, api_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, source_context_pb2, struct_pb2)
_WELL_KNOWN: dict[str, FileDescriptor] = {
    module.DESCRIPTOR.name: module.DESCRIPTOR for module in (*_MODULES, timestamp_pb2, type_pb2, wrappers_pb2)
}
_BUILT_IN = {
    "confluent/type/decimal.proto": "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
    "google/type/date.proto": "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }",
    "google/type/decimal.proto": "message Decimal { string value = 1; }",
    "google/type/money.proto": "message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }",
}
"""What registries know without being told, beside the vendor's own files: of those what payments have."""
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*", re.ASCII)
_NAME = "buckets.proto"
"""The file that a schema is; nothing imports it."""


@dataclass(frozen=True)
class ProtobufText:
    """A schema as it is written: a `.proto` file, or a descriptor in base64.

    Attributes:
        text: the schema.
        references: schemas that it imports, each after those that it imports itself.
        names: the names by which they are imported.
    """

    text: str
    references: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


@lru_cache(maxsize=256)
def read_schema(written: ProtobufText, maps_as_lists: bool = False) -> FileDescriptor:
    """Read a schema.

    Args:
        written: the schema.
        maps_as_lists: whether maps become the lists of entries as which they are written.

    Raises:
        ProtobufSchemaError: it or one that it imports is no Protobuf schema, or a type is missing.
    """
    try:
        return _resolved(written, maps_as_lists)
    except ProtobufSchemaError:
        raise
    except (TypeError, KeyError, ValueError) as error:
        # The vendor's classes say so of what is no name, no number of a field, or nowhere.
        message = f"cannot be resolved ({str(error).rpartition(': ')[2]})"
        raise ProtobufSchemaError(message) from None
    except RecursionError:
        message = "is nested too deep"
        raise ProtobufSchemaError(message) from None


def _resolved(written: ProtobufText, maps_as_lists: bool) -> FileDescriptor:
    files: dict[str, FileDescriptorProto] = {}
    for name, text in zip(written.names, written.references, strict=True):
        files[name] = _files_of(text, name)[-1]
    *imported, root = _files_of(written.text, _NAME)
    files |= {file.name: file for file in imported}
    for message in root.message_type if maps_as_lists else ():
        _forget_maps(message)
    pool = DescriptorPool()
    _add(root, files, pool, set())
    return pool.FindFileByName(root.name)


def _forget_maps(message: DescriptorProto) -> None:
    for inside in message.nested_type:
        inside.options.ClearField("map_entry")
        _forget_maps(inside)


def _files_of(text: str, name: str) -> list[FileDescriptorProto]:
    """Return the files of a schema, the one that it is about as the last one."""
    if not _BASE64.fullmatch(text):
        return [read_proto(text, name)]
    try:
        content = base64.b64decode(text)
        files = _in_set(content) or [FileDescriptorProto.FromString(content)]
    except (binascii.Error, DecodeError):
        message = "is neither a .proto file nor a descriptor in base64"
        raise ProtobufSchemaError(message) from None
    if len(files) == 1:
        files[0].name = name
    return files


def _in_set(content: bytes) -> list[FileDescriptorProto]:
    """Return the files of a set, as `protoc` writes it; none if it is no set but one file."""
    try:
        files = list(FileDescriptorSet.FromString(content).file)
    except DecodeError:
        return []
    is_set = bool(files) and FileDescriptorSet(file=files).ByteSize() == len(content)
    return files if is_set and all(file.name for file in files) else []


def _add(
    file: FileDescriptorProto, files: dict[str, FileDescriptorProto], pool: DescriptorPool, added: set[str]
) -> None:
    """Add a file to a pool, after those that it imports; an import that nobody has is left out."""
    if file.name in added:
        return
    added.add(file.name)
    found = []
    for name in file.dependency:
        known = _imported(name, files)
        if known is not None:
            _add(known, files, pool, added)
            found.append(name)
    del file.dependency[:], file.public_dependency[:], file.weak_dependency[:]
    file.dependency.extend(found)
    # Imports are open to all: a registry hands files over without saying through which of them a name is known.
    file.public_dependency.extend(range(len(found)))
    pool.AddSerializedFile(file.SerializeToString())


def _imported(name: str, files: dict[str, FileDescriptorProto]) -> FileDescriptorProto | None:
    if name in files:
        return files[name]
    if name in _WELL_KNOWN:
        return FileDescriptorProto.FromString(_WELL_KNOWN[name].serialized_pb)
    if name not in _BUILT_IN:
        return None
    package = name.rpartition("/")[0].replace("/", ".")
    return read_proto(f'syntax = "proto3"; package {package}; {_BUILT_IN[name]}', name)


def messages_of(file: FileDescriptor) -> list[Descriptor]:
    """Return the messages of a schema, each before those that are declared in it; entries of maps are none."""
    return [message for outermost in file.message_types_by_name.values() for message in _with_inner(outermost)]


def _with_inner(message: Descriptor) -> Iterator[Descriptor]:
    if not message.GetOptions().map_entry:
        yield message
        for inner in message.nested_types:
            yield from _with_inner(inner)


def message_named(file: FileDescriptor, name: str | None) -> Descriptor:
    """Return a message by its full name, or by that without the package; the only one of a schema needs no name.

    Raises:
        ProtobufSchemaError: there is none, or several without a name.
    """
    known = {message.full_name: message for message in messages_of(file)}
    if name is None:
        outermost = list(file.message_types_by_name.values())
        if len(outermost) == 1:
            return outermost[0]
        message = f"has {len(outermost)} messages, so one must be named" if outermost else "has no message"
        raise ProtobufSchemaError(message)
    found = known.get(name) or known.get(f"{file.package}.{name}")
    if found is None:
        message = f"has no message {name}{did_you_mean(name, known)}; messages: {', '.join(known) or 'none'}"
        raise ProtobufSchemaError(message)
    return found


def message_at(file: FileDescriptor, indexes: Sequence[int]) -> Descriptor:
    """Return the message that indexes lead to: one of the file, one inside of it, and so on; without any the first.

    Raises:
        ProtobufSchemaError: there is none.
    """
    inside = list(file.message_types_by_name.values())
    found = None
    for index in indexes or (0,):
        if not 0 <= index < len(inside):
            message = f"has no message at {'.'.join(map(str, indexes or (0,)))}"
            raise ProtobufSchemaError(message)
        found = inside[index]
        inside = list(found.nested_types)
    assert found is not None
    return found
