"""Passes named tuples of arrays by address in compiled code.

numba splits a tuple into its numbers wherever it is passed: a timeline of fifteen arrays is more than a hundred of
them, and most compiled code only moved them. Here a named tuple of this package that holds arrays is the address of a
place on the stack, which is not written again. So a field costs one read, and a call one argument.

A place belongs to the spot in the code that makes the tuple, and is reused when that spot is reached again. So a
variable that is assigned more than once has a place of its own; tuples are copied into it and out of it.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial, partialmethod
from typing import Any, Final

from llvmlite import ir as llvm
from numba.core import ir, types
from numba.core.base import BaseContext
from numba.core.callconv import CPUCallConv
from numba.core.datamodel import default_manager, models
from numba.core.imputils import impl_ret_borrowed, lower_getattr_generic
from numba.core.lowering import Lower
from numba.extending import box

_WORD: Final = 8
_BYTE, _INT64 = llvm.IntType(8), llvm.IntType(64)
_ADDRESS = _BYTE.as_pointer()
_MOST_WORDS: Final = 4096  # More than any tuple has
_ARGUMENT: Final = ("captures(none)", "noalias", "nonnull", "readonly")
"""What LLVM may take for granted of an address that is handed over: what lies there stays as it is."""


class ArrayTuple(types.NamedTuple):
    """The type of a named tuple that holds arrays. Its name is short, since that of each function repeats it."""

    def __init__(self, members: Sequence[types.Type], cls: type) -> None:
        """Name it after its class and a hash of its members."""
        super().__init__(members, cls)
        self.name = f"{cls.__name__}.{hashlib.blake2b(self.name.encode(), digest_size=6).hexdigest()}"


def _words(model: Any) -> int:
    """Return how many words of eight bytes a value takes."""
    if isinstance(model, ArrayTupleModel):
        return model.words
    kind = model.fe_type
    if isinstance(kind, types.Array):
        return 5 + 2 * int(kind.ndim)
    if isinstance(kind, types.BaseTuple):
        return sum(_words(default_manager.lookup(member)) for member in kind)
    return 1


class ArrayTupleModel(models.CompositeModel):
    """The memory layout of a tuple: its fields one after the other, including nested tuples."""

    def __init__(self, manager: Any, kind: ArrayTuple) -> None:
        super().__init__(manager, kind)
        self.members = [manager.lookup(member) for member in kind.types]
        self.words = 0
        self._at: list[int] = []
        for member in self.members:
            self._at.append(self.words * _WORD)
            self.words += _words(member)
        assert self.words <= _MOST_WORDS
        self._data = llvm.LiteralStructType([member.get_data_type() for member in self.members])

    def get_value_type(self) -> Any:
        """Return the type of an address."""
        return _ADDRESS

    def get_data_type(self) -> Any:
        """Return the type of all fields, which a function returns and arrays hold."""
        return self._data

    get_return_type = get_data_type

    def as_argument(self, builder: Any, value: Any) -> Any:
        """Pass the address."""
        del builder
        return value

    from_argument = as_argument

    def as_data(self, builder: Any, value: Any) -> Any:
        """Read all fields."""
        data = llvm.Constant(self._data, llvm.Undefined)
        for at, member in enumerate(self.members):
            data = builder.insert_value(data, member.as_data(builder, self.field(builder, value, at)), [at])
        return data

    def from_data(self, builder: Any, value: Any) -> Any:
        """Put all fields into a new place."""
        fields = (builder.extract_value(value, [at]) for at in range(len(self.members)))
        return self.make(builder, [m.from_data(builder, f) for m, f in zip(self.members, fields, strict=True)])

    as_return, from_return = as_data, from_data

    def traverse(self, builder: Any) -> list[tuple[Any, Callable[[Any], Any]]]:
        """Return the reference-counted fields, and how to read each. A variable without a value has none."""

        def read(at: int, value: Any) -> Any:
            is_unset = builder.icmp_unsigned("==", value, _ADDRESS(None))
            return self.field(builder, builder.select(is_unset, _nothing(builder.module), value), at)

        counted = ((at, member) for at, member in enumerate(self.members) if member.contains_nrt_meminfo())
        return [(member.fe_type, partial(read, at)) for at, member in counted]

    def inner_models(self) -> list[Any]:
        """Return the models of the fields."""
        return self.members

    def new_place(self, builder: Any) -> Any:
        """Return the address of a new place in this function's stack."""
        with builder.goto_entry_block():
            return builder.bitcast(builder.alloca(llvm.ArrayType(_INT64, self.words)), _ADDRESS)

    def field(self, builder: Any, value: Any, at: int) -> Any:
        """Read a field: its value, or the address of a tuple inside this one."""
        place, member = self._place(builder, value, at), self.members[at]
        if isinstance(member, ArrayTupleModel):
            return place
        return builder.load(place, typ=member.get_value_type(), align=_WORD)

    def make(self, builder: Any, values: Iterable[Any]) -> Any:
        """Put fields into a new place, and return its address."""
        value = self.new_place(builder)
        for at, (member, field) in enumerate(zip(self.members, values, strict=True)):
            place = self._place(builder, value, at)
            if isinstance(member, ArrayTupleModel):
                member.copy(builder, place, field)
            else:
                builder.store(field, builder.bitcast(place, field.type.as_pointer()), align=_WORD)
        return value

    def copy(self, builder: Any, target: Any, source: Any) -> None:
        """Copy what lies at one address to another."""
        function = builder.module.declare_intrinsic("llvm.memmove", [_ADDRESS, _ADDRESS, _INT64])
        builder.call(function, [target, source, _INT64(self.words * _WORD), llvm.IntType(1)(0)])

    def _place(self, builder: Any, value: Any, at: int) -> Any:
        return builder.gep(value, [_INT64(self._at[at])], source_etype=_BYTE, inbounds=True)


class _AlikeModel(models.UniTupleModel):
    """A plain tuple of tuples of one type, which are returned with all of their fields: their places go."""

    get_return_type = models.UniTupleModel.get_data_type
    as_return = models.UniTupleModel.as_data
    from_return = models.UniTupleModel.from_data


def _alike(manager: Any, kind: types.UniTuple) -> Any:
    model = _AlikeModel if isinstance(kind.dtype, ArrayTuple) else models.UniTupleModel
    return model(manager, kind)


def _nothing(module: Any) -> Any:
    """Return the address of zeros."""
    name = "buckets.nothing"
    if name not in module.globals:
        kind = llvm.ArrayType(_INT64, _MOST_WORDS)
        zeros = llvm.GlobalVariable(module, kind, name)
        zeros.linkage, zeros.global_constant, zeros.initializer = "internal", True, kind(None)
    return module.globals[name].bitcast(_ADDRESS)


def _field(context: Any, builder: Any, kind: ArrayTuple, value: Any, name: str) -> Any:
    at = kind.fields.index(name)
    field = context.data_model_manager[kind].field(builder, value, at)
    return impl_ret_borrowed(context, builder, kind[at], field)


def _boxed(kind: ArrayTuple, value: Any, tools: Any) -> Any:
    """Make the tuple of Python."""
    model, python = tools.context.data_model_manager[kind], tools.pyapi
    fields = python.tuple_new(kind.count)
    for at, member in enumerate(kind.types):
        python.tuple_setitem(fields, at, tools.box(member, model.field(tools.builder, value, at)))
    cls = python.unserialize(python.serialize_object(kind.instance_class))
    made = python.call(cls, fields)
    python.decref(cls)
    python.decref(fields)
    return made


def _from_types(original: Any, cls: Any, members: Any, python_class: Any = None) -> Any:
    """Return the type of a tuple."""
    if python_class is not None and python_class.__module__.startswith("buckets.") and hasattr(python_class, "_fields"):
        members = tuple(map(types.unliteral, members))
        if any(isinstance(member, types.Array | ArrayTuple) for member in members):
            return ArrayTuple(members, python_class)
    return original(cls, members, python_class)


def _make_tuple(context: Any, original: Any, builder: Any, kind: Any, values: Any) -> Any:
    if isinstance(kind, ArrayTuple):
        return context.data_model_manager[kind].make(builder, values)
    return original(context, builder, kind, values)


def _decorate(convention: Any, original: Any, function: Any, names: Any, kinds: Any, noalias: bool = False) -> None:
    original(convention, function, names, kinds, noalias)
    arguments = iter(convention.get_arguments(function))
    packer = convention._get_arg_packer(kinds)
    for kind, argument in zip(kinds, packer._unflattener.unflatten(arguments), strict=True):
        if isinstance(kind, ArrayTuple):
            set.update(argument.attributes, _ARGUMENT)


def _is_kept(lower: Any, name: str) -> bool:
    """Return whether a variable is a tuple and has a place of its own: it is assigned more than once."""
    if not isinstance(lower.typeof(name), ArrayTuple) or name in lower._singly_assigned_vars:
        return False
    if "times_assigned" not in vars(lower):
        assigned = (each.target.name for block in lower.blocks.values() for each in block.find_insts(ir.Assign))
        lower.times_assigned, lower.kept_places = Counter(assigned), {}
    return lower.times_assigned[name] > 1


def _load(lower: Any, original: Any, name: str) -> Any:
    """Read a variable; return a copy if it will be assigned again."""
    value = original(lower, name)
    if not _is_kept(lower, name):
        return value
    model = lower.context.data_model_manager[lower.typeof(name)]
    read = model.new_place(lower.builder)
    model.copy(lower.builder, read, value)
    return read


def _store(lower: Any, original: Any, value: Any, name: str, argidx: int | None = None) -> None:
    """Assign a variable."""
    if argidx is not None or not _is_kept(lower, name):
        original(lower, value, name, argidx)
        return
    kind, builder = lower.typeof(name), lower.builder
    model = lower.context.data_model_manager[kind]
    lower._alloca_var(name, kind)
    lower.decref(kind, builder.load(lower.getvar(name)))
    if name not in lower.kept_places:
        lower.kept_places[name] = model.new_place(builder)
    model.copy(builder, lower.kept_places[name], value)
    builder.store(lower.kept_places[name], lower.getvar(name))


def hand_over_by_address() -> None:
    """Make numba pass named tuples by address from now on."""
    default_manager.register(ArrayTuple, ArrayTupleModel)
    default_manager.register(types.UniTuple, _alike)
    lower_getattr_generic(ArrayTuple)(_field)
    box(ArrayTuple)(_boxed)
    types.BaseTuple.from_types = classmethod(partial(_from_types, types.BaseTuple.from_types.__func__))
    for owner, name, method in (
        (BaseContext, "make_tuple", _make_tuple),
        (CPUCallConv, "decorate_function", _decorate),
        (Lower, "loadvar", _load),
        (Lower, "storevar", _store),
    ):
        setattr(owner, name, partialmethod(method, getattr(owner, name)))
