"""A Protobuf schema with its imports: compiled by protoc if it is text, resolved by the vendor's descriptors."""

import base64
import binascii
import importlib
import re
import subprocess
import sys
from collections.abc import Collection, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from buckets.errors import BucketsError, first_line
from buckets.events.csv_events import BYTE_ORDER_MARK
from buckets.events.decoded import SchemaError, WriterSchema
from buckets.extras import check_format
from buckets.printable import short_line
from buckets.validation import did_you_mean

_BUILT_IN = {
    "confluent/meta.proto": """import "google/protobuf/descriptor.proto";
        message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }""",
    "confluent/type/decimal.proto": "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
    "google/type/date.proto": "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }",
    "google/type/decimal.proto": "message Decimal { string value = 1; }",
    "google/type/money.proto": "message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }",
}
"""Imports that registries know implicitly, besides the vendor's files: those that occur in payments."""
_VENDORS_OWN = re.compile(r"google/protobuf/\w+\.proto", re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*", re.ASCII)
_NAME = "buckets.proto"  # File name of a schema; nothing imports it
_PLACE = re.compile(r"(?P<file>.*?):(?:(?P<line>\d+):\d+:)? (?P<fault>.*)")
_COMPILED_WITHIN_S = 60
_LONGEST_NAME = 200


@lru_cache(maxsize=256)
def read_schema(written: WriterSchema, maps_as_lists: bool = False) -> FileDescriptor:
    """Read a schema; SchemaError if it or an import is invalid, or a type is missing.

    With `maps_as_lists` maps become lists of entries, which is how they are encoded.
    """
    try:
        known = _files_of(written)
        for message in known[_NAME].message_type if maps_as_lists else ():
            _forget_maps(message)
        pool = DescriptorPool()
        _add(known[_NAME], known, pool, set())
        return pool.FindFileByName(_NAME)
    except SchemaError:
        raise
    except (TypeError, KeyError, ValueError) as error:
        # The vendor's classes raise these for invalid names and field numbers, and for missing types.
        message = f"cannot be resolved ({str(error).rpartition(': ')[2]})"
        raise SchemaError(message) from None
    except RecursionError:
        message = "is nested too deep"
        raise SchemaError(message) from None


@lru_cache(maxsize=16)
def compiled_text(text: str) -> str:
    """Return a `.proto` file with all its imports as descriptors in base64; raises as `read_schema`."""
    return base64.b64encode(FileDescriptorSet(file=_compiled({_NAME: text}, [])).SerializeToString()).decode()


def _files_of(written: WriterSchema) -> dict[str, FileDescriptorProto]:
    """Return a schema and its imports, by name."""
    known: dict[str, FileDescriptorProto] = {}
    texts: dict[str, str] = {}
    for name, text in zip((*written.names, _NAME), (*written.references, written.text), strict=True):
        if _BASE64.fullmatch(text):
            known |= {file.name: file for file in _decoded(text, name)}
        else:
            texts[name] = text
    imported = {name for file in known.values() for name in file.dependency} - known.keys()
    texts = {name: _built_in(name) for name in imported & _BUILT_IN.keys()} | texts
    return known | {file.name: file for file in (_compiled(texts, list(known.values())) if texts else ())}


def _forget_maps(message: DescriptorProto) -> None:
    for inside in message.nested_type:
        inside.options.ClearField("map_entry")
        _forget_maps(inside)


def _built_in(name: str) -> str:
    package = name.rpartition("/")[0].replace("/", ".")
    return f'syntax = "proto3"; package {package}; {_BUILT_IN[name]}'


def _compiled(texts: dict[str, str], known: Sequence[FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Compile `.proto` files, sorted so that imports come first, with protoc."""
    check_format("protobuf")
    includes = files("grpc_tools") / "_proto"
    with TemporaryDirectory(prefix="buckets-proto-") as folder:
        root, out, into = Path(folder, "files"), Path(folder, "out"), Path(folder, "known")
        for name, text in ({name: _built_in(name) for name in _BUILT_IN} | texts).items():
            _write(root, name, text.removeprefix(BYTE_ORDER_MARK))
        into.write_bytes(FileDescriptorSet(file=known).SerializeToString())
        # A process of its own: what the compiler says goes to its standard error, and a crash of it ends nothing else.
        command = [sys.executable, "-P", "-m", "grpc_tools.protoc", f"-I{root}", f"-I{includes}", "--include_imports"]
        command += [f"--descriptor_set_in={into}", f"--descriptor_set_out={out}", *texts]
        try:
            ran = subprocess.run(command, capture_output=True, timeout=_COMPILED_WITHIN_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _not_compiled(first_line(error)) from None
        if ran.returncode:
            said = ran.stderr.decode(errors="replace").replace(f"{root}/", "").splitlines()
            raise _fault(said, {*texts, *_BUILT_IN, *(file.name for file in known)})
        return list(FileDescriptorSet.FromString(out.read_bytes()).file)


def _write(root: Path, name: str, text: str) -> None:
    path = PurePosixPath(name)
    is_file = path.name and not path.is_absolute() and ".." not in path.parts and len(name) <= _LONGEST_NAME
    try:
        if is_file and name[0] != "-" and "\0" not in name:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
            return
    except (FileExistsError, IsADirectoryError, NotADirectoryError):  # Another one is a folder of its name.
        pass
    message = f"has an import {short_line(name)!r}, which is not a file"
    raise SchemaError(message)


def _fault(said: Sequence[str], names: Collection[str]) -> Exception:
    """Return the fault that protoc found in one of the files; if it reports none, blame the machine."""
    for line in said:
        found = _PLACE.fullmatch(line)
        if found is not None and found["file"] in names and not found["fault"].startswith("warning: "):
            place = "" if found["file"] == _NAME else f"{found['file']}: "
            place += f"line {found['line']}: " if found["line"] else ""
            return SchemaError(f"cannot be compiled ({place}{found['fault']})")
    return _not_compiled(said[-1] if said else "it says nothing")


def _not_compiled(reason: str) -> BucketsError:
    return BucketsError(
        f"a .proto file cannot be compiled ({reason}); see that the machine has memory and room in TMPDIR"
    )


def _decoded(text: str, name: str) -> list[FileDescriptorProto]:
    """Return the files of descriptors in base64; the main file, which is the last, gets `name`."""
    try:
        content = base64.b64decode(text)
        try:
            found = list(FileDescriptorSet.FromString(content).file)
        except DecodeError:
            found = []
        is_set = bool(found) and FileDescriptorSet(file=found).ByteSize() == len(content)
        if not is_set or not all(file.name for file in found):  # It is no set, as `protoc` writes it, but one file.
            found = [FileDescriptorProto.FromString(content)]
    except (binascii.Error, DecodeError):
        message = "is neither a .proto file nor a descriptor in base64"
        raise SchemaError(message) from None
    found[-1].name = name
    return found


def _add(
    file: FileDescriptorProto, known: dict[str, FileDescriptorProto], pool: DescriptorPool, added: set[str]
) -> None:
    """Add a file to a pool, after its imports; skip imports that are missing."""
    if file.name in added:
        return
    added.add(file.name)
    found = []
    for name in file.dependency:
        imported = known.get(name) or _of_vendor(name)
        if imported is not None:
            _add(imported, known, pool, added)
            found.append(name)
    del file.dependency[:], file.public_dependency[:], file.weak_dependency[:]
    file.dependency.extend(found)
    # Imports are open to all: a registry hands files over without saying through which of them a name is known.
    file.public_dependency.extend(range(len(found)))
    pool.AddSerializedFile(file.SerializeToString())


def _of_vendor(name: str) -> FileDescriptorProto | None:
    """Return a file that ships with the runtime, such as the one for timestamps."""
    if not _VENDORS_OWN.fullmatch(name):
        return None
    try:
        module = importlib.import_module(name.replace("/", ".").removesuffix(".proto") + "_pb2")
    except ImportError:
        return None
    return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def messages_of(file: FileDescriptor | Descriptor) -> list[Descriptor]:
    """Return the messages of a schema, each before its nested messages, without map entries."""
    inside = file.message_types_by_name.values() if isinstance(file, FileDescriptor) else file.nested_types
    messages = [message for message in inside if not message.GetOptions().map_entry]
    return [each for message in messages for each in (message, *messages_of(message))]


def message_named(file: FileDescriptor, name: str | None) -> Descriptor:
    """Return a message by its full or unqualified name, or the only one for None; SchemaError if not found."""
    known = {message.full_name: message for message in messages_of(file)}
    if name is None:
        outermost = list(file.message_types_by_name.values())
        if len(outermost) == 1:
            return outermost[0]
        message = f"has {len(outermost)} messages, so one must be named" if outermost else "has no message"
        raise SchemaError(message)
    found = known.get(name) or known.get(f"{file.package}.{name}")
    if found is None:
        message = f"has no message {name}{did_you_mean(name, known)}; messages: {', '.join(known) or 'none'}"
        raise SchemaError(message)
    return found


def message_at(file: FileDescriptor, indexes: Sequence[int]) -> Descriptor:
    """Return the message at these indexes, from the file inwards, or the first for none; SchemaError if not found."""
    inside = list(file.message_types_by_name.values())
    found = None
    for index in indexes or (0,):
        if not 0 <= index < len(inside):
            message = f"has no message at {'.'.join(map(str, indexes or (0,)))}"
            raise SchemaError(message)
        found = inside[index]
        inside = list(found.nested_types)
    assert found is not None
    return found
