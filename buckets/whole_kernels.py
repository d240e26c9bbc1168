"""Optimises kernels as a whole: a function that only compiled code calls is not optimised or translated on its own.

numba does both for each function, and again for each caller, so a function deep below a kernel passed through LLVM once
for each level above it. Here a function that Python does not call stays shortened LLVM code until a kernel is built
from everything that it reaches. The kernel has one private copy of it, so LLVM knows all of its callers.

Compilation has fewer passes too: kernels have no closures, list comprehensions or whole-array expressions, for which
numba has passes of their own.
"""

from functools import cache, partialmethod
from typing import Any, Final

from llvmlite.binding import Linkage
from numba import _dynfunc
from numba.core import typed_passes, untyped_passes
from numba.core.codegen import CPUCodeLibrary
from numba.core.compiler import CompilerBase
from numba.core.compiler_lock import require_global_compiler_lock
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.cpu import CPUContext
from numba.core.datamodel import models
from numba.core.targetconfig import TargetConfig

_FOR_CALLERS: Final = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "forceinline": False}
"""Options that matter to the callers of a function alone: numba would compile what it calls once for each of them."""
_OPTIMISATION: Final = {"opt": 1, "loop_vectorize": False, "slp_vectorize": False}
"""For LLVM. Higher levels take longer and gain nothing, nor do vectors: loops are short, or need what came before."""


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(typed_passes.NativeLowering):
    """Lowers a function to LLVM."""

    def run_pass(self, state: Any) -> bool:
        library = state.targetctx.codegen().create_library(state.func_id.func_qualname)
        library.enable_object_caching()
        library.is_kernel = True
        state.library = library
        return super().run_pass(state)


_PASSES = (
    untyped_passes.TranslateByteCode,
    untyped_passes.FixupArgs,
    untyped_passes.GenericRewrites,
    untyped_passes.ReconstructSSA,
    typed_passes.NopythonTypeInference,
    typed_passes.PreLowerStripPhis,
    typed_passes.IRLegalization,
    _Lowering,
    typed_passes.NoPythonBackend,
)


class _Passes(PassManager):
    """A pass manager whose passes compute what they need themselves, so that nothing is recomputed after each."""

    _ENFORCING = False


class KernelCompiler(CompilerBase):
    """Compiles a function of this package."""

    def define_pipelines(self) -> list[PassManager]:
        """Return the single pipeline."""
        passes = _Passes("kernel")
        for each in _PASSES:
            passes.add_pass(each, each.__name__)
        passes.finalize()
        return [passes]


def _reached(library: Any, seen: set[Any], found: list[Any]) -> list[Any]:
    """Return all libraries that a library reaches, callees first."""
    for each in library._linking_libraries:
        if each not in seen:
            seen.add(each)
            if not each._finalized:
                _reached(each, seen, found)
            found.append(each)
    return found


def _optimize_functions(library: Any, original: Any, module: Any) -> None:
    """Optimise the functions of a module one by one, before it is linked."""
    if not hasattr(library, "is_kernel"):
        return original(library, module)
    module.data_layout = library._codegen._data_layout
    passes, builder = library._codegen._function_pass_manager(**_OPTIMISATION)
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    return None


def _optimize_module(library: Any, original: Any) -> None:
    """Optimise a kernel with everything that it reaches."""
    if not hasattr(library, "is_kernel"):
        return original(library)
    passes, builder = library._codegen._module_pass_manager(**_OPTIMISATION)
    passes.run(library._final_module, builder)
    return None


def _add_linking_library(library: Any, other: Any) -> None:
    library._linking_libraries.append(other)


def _finalize(library: Any) -> None:
    """Link a kernel and everything that it reaches into one module: callers first, as LLVM drops uncalled functions."""
    require_global_compiler_lock()
    library._raise_if_finalized()
    module, environments = library._final_module, []
    own = {function.name for function in module.functions if not function.is_declaration}
    for each in reversed(_reached(library, set(), [])):
        library._reload_init.update(each._reload_init)
        if each._finalized:
            module.link_in(each._get_module_for_linking(), preserve=True)
            continue
        for function in each._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.external:
                function.linkage = Linkage.linkonce_odr
        module.link_in(each._final_module, preserve=True)
        environments += [each.environment] if hasattr(each, "environment") else []
    for function in module.functions:
        if not function.is_declaration and function.name not in own:
            function.linkage = Linkage.internal
    library._optimize_final_module()
    module.verify()
    library._finalize_final_module()
    for name, environment in environments:
        if library._codegen._engine.is_symbol_defined(name):
            library._codegen.set_env(name, environment)


_translated = CPUContext.get_executable


def _get_executable(context: Any, library: Any, description: Any, environment: Any) -> Any:
    """Return the function for Python; if Python does not call it, only a placeholder for its compiled callers."""
    functions = () if library._finalized else {each.name for each in library._final_module.functions}
    if library._finalized or description.llvm_cpython_wrapper_name in functions:
        return _translated(context, library, description, environment)
    library.environment = context.get_env_name(description), environment
    name = description.qualname.split(".")[-1]
    return _dynfunc.make_function(description.lookup_module(), name, "", 0, environment, (library,))


@cache
def _defaults(kind: Any) -> dict[str, Any]:
    return {name: option.default for name, option in kind.options.items()}


def _values(options: Any) -> dict[str, Any]:
    """Return the options of a function that affect its callees, which numba compares at each call."""
    return _defaults(type(options)) | options._values | _FOR_CALLERS


def _counted_member(model: Any, builder: Any) -> list[tuple[Any, Any]]:
    """Return the only member of an array whose references are counted."""
    return [(model.get_type("meminfo"), lambda value: model.get(builder, value, "meminfo"))]


def compile_as_a_whole() -> None:
    """Make numba compile kernels as a whole from now on."""
    for name, method in (("_optimize_functions", _optimize_functions), ("_optimize_final_module", _optimize_module)):
        setattr(CPUCodeLibrary, name, partialmethod(method, getattr(CPUCodeLibrary, name)))
    CPUCodeLibrary.add_linking_library = _add_linking_library
    CPUCodeLibrary.finalize = _finalize
    CPUContext.get_executable = _get_executable
    TargetConfig.values = _values
    models.ArrayModel.traverse = _counted_member
