"""A `.proto` file as a descriptor, as the compiler `protoc` makes it, without what no decoder needs.

Options other than defaults and features, services and extensions are passed over. Names of types stay as they are
written; the pool of descriptors resolves them.

Source: https://protobuf.dev/reference/protobuf/proto3-spec/, likewise for proto2 and editions
"""

from collections.abc import Callable
from typing import Any, NoReturn

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    Edition,
    EnumDescriptorProto,
    FeatureSet,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from buckets.events.protobuf.proto_tokens import ProtobufSchemaError, Word, unquoted, words_of

_SCALARS = {
    name: FieldDescriptorProto.Type.Value(f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32"),
        *("sfixed32", "sfixed64", "sint32", "sint64"),
    )
}
_LABELS = {
    name: FieldDescriptorProto.Label.Value(f"LABEL_{name.upper()}") for name in ("optional", "required", "repeated")
}
_OPTIONAL = _LABELS["optional"]
_PAIRS = {"{": "}", "[": "]", "(": ")", "<": ">"}


def read_proto(text: str, name: str) -> FileDescriptorProto:
    """Read a `.proto` file.

    Args:
        text: the file.
        name: the name by which others import it.

    Raises:
        ProtobufSchemaError: it is none; says in which line.
    """
    try:
        return _Parser(words_of(text), name).file()
    except RecursionError:
        message = "is nested too deep"
        raise ProtobufSchemaError(message) from None


class _Parser:
    """Reads words from the first to the last."""

    def __init__(self, words: list[Word], name: str) -> None:
        self._words = words
        self._at = 0
        self._file = FileDescriptorProto(name=name, syntax="proto2")

    # Words

    @property
    def _word(self) -> Word:
        return self._words[self._at]

    def _next(self) -> Word:
        word = self._word
        if word.kind == "end":
            self._fail("more")
        self._at += 1
        return word

    def _take(self, text: str) -> bool:
        """Go over a name or sign if it comes next."""
        is_next = self._word.text == text and self._word.kind in ("name", "sign")
        self._at += is_next
        return is_next

    def _expect(self, text: str) -> None:
        if not self._take(text):
            self._fail(repr(text))

    def _of_kind(self, kind: str, wanted: str) -> str:
        if self._word.kind != kind:
            self._fail(wanted)
        return self._next().text

    def _name(self) -> str:
        return self._of_kind("name", "a name")

    def _number(self) -> int:
        text = self._of_kind("number", "a number")
        try:
            return int(text, 8) if text.startswith("0") and text.isdigit() else int(text, 0)
        except ValueError:
            self._at -= 1
            self._fail("a whole number")

    def _text(self) -> bytes:
        text = unquoted(self._of_kind("text", "a text"))
        while self._word.kind == "text":
            text += unquoted(self._next().text)
        return text

    def _fail(self, wanted: str) -> NoReturn:
        word = self._word
        there = f"has {word.text!r} in line {word.line}" if word.text else f"ends in line {word.line}"
        message = f"{there}, where {wanted} is expected"
        raise ProtobufSchemaError(message) from None

    def _skip(self, end: str) -> None:
        """Go over all up to a sign, and that, with whatever is in brackets."""
        while not self._take(end):
            word = self._next()
            if word.kind == "sign" and word.text in "{[(":
                self._skip(_PAIRS[word.text])

    # Statements

    def file(self) -> FileDescriptorProto:
        """Read the file."""
        statements: dict[str, Callable[[], None]] = {
            "syntax": self._syntax,
            "edition": self._edition,
            "import": self._import,
            "package": self._package,
            "option": lambda: self._option(self._file.options),
            "message": lambda: self._message(self._file.message_type.add()),
            "enum": lambda: self._enum(self._file.enum_type.add()),
            "service": self._passed_over,
            "extend": self._passed_over,
        }
        while self._word.kind != "end":
            if self._take(";"):
                continue
            self._visibility()
            read = statements.get(self._word.text)
            if read is None or self._word.kind != "name":
                self._fail("a statement such as message")
            self._next()
            read()
        return self._file

    def _syntax(self) -> None:
        self._expect("=")
        self._file.syntax = self._utf8()
        self._expect(";")
        if self._file.syntax not in ("proto2", "proto3"):
            message = f"has the syntax {self._file.syntax!r}; proto2, proto3 and editions are read"
            raise ProtobufSchemaError(message)

    def _edition(self) -> None:
        self._expect("=")
        name = self._utf8()
        self._expect(";")
        if f"EDITION_{name}" not in Edition.keys():  # noqa: SIM118 - an enum, no mapping
            message = f"has the edition {name!r}, which is not known"
            raise ProtobufSchemaError(message)
        self._file.syntax, self._file.edition = "editions", Edition.Value(f"EDITION_{name}")

    def _utf8(self) -> str:
        try:
            return self._text().decode()
        except UnicodeDecodeError:
            self._fail("UTF-8")

    def _import(self) -> None:
        is_public = self._take("public")
        if not is_public:
            self._take("weak") or self._take("option")
        self._file.dependency.append(self._utf8())
        if is_public:
            self._file.public_dependency.append(len(self._file.dependency) - 1)
        self._expect(";")

    def _package(self) -> None:
        self._file.package = self._name()
        self._expect(";")

    def _passed_over(self) -> None:
        """Go over a block with its name."""
        while not self._take("{"):
            self._next()
        self._skip("}")

    def _visibility(self) -> None:
        """Go over the word with which edition 2024 says who may name a message or an enum."""
        if self._word.text in ("export", "local") and self._words[self._at + 1].text in ("message", "enum"):
            self._next()

    def _message(self, made: DescriptorProto) -> None:
        made.name = self._name()
        self._body(made)

    def _body(self, made: DescriptorProto) -> None:
        self._expect("{")
        while not self._take("}"):
            if self._take(";"):
                continue
            self._visibility()
            if self._take("message"):
                self._message(made.nested_type.add())
            elif self._take("enum"):
                self._enum(made.enum_type.add())
            elif self._take("oneof"):
                self._oneof(made)
            elif self._take("option"):
                self._option(made.options)
            elif self._take("reserved") or self._take("extensions"):
                self._skip(";")
            elif self._take("extend"):
                self._passed_over()
            else:
                self._field(made)
        self._name_synthetic_oneofs(made)

    def _oneof(self, made: DescriptorProto) -> None:
        made.oneof_decl.add(name=self._name())
        index = len(made.oneof_decl) - 1
        self._expect("{")
        while not self._take("}"):
            if self._take(";"):
                continue
            if self._take("option"):
                self._skip(";")
                continue
            self._field(made).oneof_index = index

    def _field(self, made: DescriptorProto) -> FieldDescriptorProto:
        """Read a field of a message; one of a map makes a message of its entries."""
        label = self._word.text if self._word.kind == "name" else ""
        if label in _LABELS:
            self._next()
        field = made.field.add(label=_LABELS.get(label, _OPTIONAL))
        if label == "optional" and self._file.syntax == "proto3":
            field.proto3_optional = True
        kind = self._name()
        if kind == "map" and self._take("<"):
            self._map(made, field)
            return field
        field.name = self._name()
        self._expect("=")
        field.number = self._number()
        if kind == "group":
            self._options(field)
            group = made.nested_type.add(name=field.name)
            field.type, field.type_name, field.name = FieldDescriptorProto.TYPE_GROUP, group.name, field.name.lower()
            self._body(group)
            return field
        self._set_type(field, kind)
        self._options(field)
        self._expect(";")
        return field

    def _set_type(self, field: FieldDescriptorProto, kind: str) -> None:
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        else:
            field.type_name = kind

    def _map(self, made: DescriptorProto, field: FieldDescriptorProto) -> None:
        key = self._name()
        self._expect(",")
        value = self._name()
        self._expect(">")
        field.name = self._name()
        self._expect("=")
        field.number = self._number()
        self._options(field)
        self._expect(";")
        name = "".join(part[:1].upper() + part[1:] for part in field.name.split("_"))
        entry = made.nested_type.add(name=f"{name}Entry")
        entry.options.map_entry = True
        for number, (part, of_part) in enumerate((("key", key), ("value", value)), 1):
            self._set_type(entry.field.add(name=part, number=number, label=_OPTIONAL), of_part)
        field.label, field.type, field.type_name = _LABELS["repeated"], FieldDescriptorProto.TYPE_MESSAGE, entry.name

    def _name_synthetic_oneofs(self, made: DescriptorProto) -> None:
        """Give each `optional` field of proto3 a oneof of its own, behind the real ones, as `protoc` does."""
        for field in made.field:
            if field.proto3_optional and not field.HasField("oneof_index"):
                made.oneof_decl.add(name=f"_{field.name}")
                field.oneof_index = len(made.oneof_decl) - 1

    def _enum(self, made: EnumDescriptorProto) -> None:
        made.name = self._name()
        self._expect("{")
        while not self._take("}"):
            if self._take(";"):
                continue
            if self._take("option"):
                self._option(made.options)
            elif self._take("reserved"):
                self._skip(";")
            else:
                name = self._name()
                self._expect("=")
                sign = -1 if self._take("-") else 1
                made.value.add(name=name, number=sign * self._number())
                if self._take("["):
                    self._skip("]")
                self._expect(";")

    # Options

    def _option(self, options: Any) -> None:
        """Read an option of a file, message or enum: what decoding needs of it."""
        if self._are_features(options):
            self._expect(";")
            return
        at = self._at
        name, value = self._assigned()
        if name == "allow_alias":
            options.allow_alias = value == "true"
        elif not self._is_feature(options, name, value):
            self._at = at
            self._skip(";")
            return
        self._expect(";")

    def _options(self, field: FieldDescriptorProto) -> None:
        """Read what stands in brackets behind a field."""
        if not self._take("["):
            return
        while True:
            if not self._are_features(field.options):
                self._option_of(field)
            if self._take("]"):
                return
            self._expect(",")

    def _option_of(self, field: FieldDescriptorProto) -> None:
        is_text = self._is_text_assigned()
        name, value = self._assigned()
        if name == "default":
            field.default_value = _default(value, field, is_text)
        elif name == "packed":
            field.options.packed = value == "true"
        else:
            self._is_feature(field.options, name, value)

    def _is_text_assigned(self) -> bool:
        return len(self._words) > self._at + 2 and self._words[self._at + 2].kind == "text"

    def _assigned(self) -> tuple[str, str]:
        """Read `name = value`; the name is empty where some of it is in brackets, the value of braces is."""
        name = "" if self._word.text == "(" else self._name()
        while not self._take("="):
            name = ""
            if self._word.kind == "name":
                self._next()
            elif not self._take("."):
                self._expect("(")
                self._skip(")")
        if self._take("{"):
            self._skip("}")
            return name, ""
        if self._word.kind == "text":
            return name, self._text().decode("latin-1")
        sign = "-" if self._take("-") else ""
        self._take("+")
        return name, sign + self._next().text

    def _are_features(self, options: Any) -> bool:
        """Set the features of an edition that stand in braces; returns whether such come next."""
        if [word.text for word in self._words[self._at : self._at + 3]] != ["features", "=", "{"]:
            return False
        self._at += 3
        while not self._take("}"):
            name = ""
            if self._take("["):
                self._skip("]")
            else:
                name = f"features.{self._name()}"
            self._take(":")
            if self._take("{"):
                self._skip("}")
            else:
                self._is_feature(options, name, self._next().text)
            self._take(",") or self._take(";")
        return True

    def _is_feature(self, options: Any, name: str, value: str) -> bool:
        """Set a feature of an edition; returns whether it is one that is known."""
        feature = FeatureSet.DESCRIPTOR.fields_by_name.get(name.removeprefix("features."))
        if not name.startswith("features.") or feature is None or feature.enum_type is None:
            return False
        number = feature.enum_type.values_by_name.get(value)
        if number is None:
            message = f"has {name} = {value}, which is not known"
            raise ProtobufSchemaError(message)
        setattr(options.features, feature.name, number.number)
        return True


def _default(value: str, field: FieldDescriptorProto, is_text: bool) -> str:
    """Return a default as descriptors have it: texts as they are, bytes with escapes, numbers in decimal digits."""
    if not is_text:
        try:
            return str(int(value, 0)) if value.lower().lstrip("-").startswith("0x") else value
        except ValueError:
            return value
    raw = value.encode("latin-1")
    if field.type == FieldDescriptorProto.TYPE_BYTES:
        return "".join(chr(byte) if 32 <= byte < 127 and byte not in b"\\\"'" else f"\\{byte:03o}" for byte in raw)
    return raw.decode("utf-8", "replace")
