"""Redirects calls of a library's functions, and leaves the functions what they are.

A function's code is replaced, so that whoever holds the function calls ours: `from soundfile import
read` as well. Its identity, name, module, defaults, and what `inspect` tells of it stay. Of a
function in C, or one that is wrapped already, the name in its module or class is given to another.

Ban: only in a process of ours.
"""

import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from stoker.stack import passed_over

_REPLACED = (types.FunctionType, types.BuiltinFunctionType)
_CYTHONS = "cython_function_or_method"
Undo = Callable[[], None]
_ours: set[int] = set()  # functions whose calls go to hooks of ours, by id: they live as long
# Where in `named` a hook puts what is to end with the call, as a local variable of the function's own would:
# so does a file that nobody has closed, and Python's warning names the line that had called. No name of an argument.
LOCAL = ""
# Is given the original function, and the call's arguments.
Hook = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


def redirect(owner: Any, name: str, hook: Hook) -> Undo | None:
    """Have `hook` called in place of a function, and return what ends that. Returns None if that
    function is not there, or of another kind than expected: then it is left alone."""
    function = getattr(owner, name, None)
    if type(function) is types.FunctionType and not function.__closure__:
        return _redirect_code(function, hook)
    if type(function).__name__ == _CYTHONS or type(function) in _REPLACED:
        return _replace(owner, name, function, hook)
    return None


def is_written_in(function: Any, file: str | None) -> bool:
    """Whether a function of Python's was written in a file, also if its calls go to a hook of ours; one that
    wraps it was not."""
    return type(function) is types.FunctionType and written_code(function).co_filename == file


def written_code(function: types.FunctionType) -> types.CodeType:
    """Return the code that a function was written with, also if its calls go to a hook of ours."""
    while id(function) in _ours:
        function = vars(function)["__wrapped__"]
    return function.__code__


def is_being_imported(module: Any) -> bool:
    """Whether a module is not there yet, or not all of it: some thread is importing it. Source:
    importlib._bootstrap `_find_and_load`, 3.11 to 3.14."""
    return module is None or bool(
        getattr(getattr(module, "__spec__", None), "_initializing", False)
    )


def is_of_library(module: str, value: Any) -> bool:
    """Whether a function, or a property's, is of the library that a module belongs to: written in the file of
    the module that it names. Nothing is nobody's."""
    function = value.fget if isinstance(value, property) else value
    made_in = str(getattr(function, "__module__", ""))
    file = getattr(sys.modules.get(made_in), "__file__", None)
    is_librarys = made_in.partition(".")[0] == module.partition(".")[0]
    return value is None or (is_librarys and is_written_in(function, file))


def _redirect_code(function: types.FunctionType, hook: Hook) -> Undo:
    original = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__
    )
    original.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(original, function)
    original.__dict__.pop("__wrapped__", None)
    hooked = functools.partial(hook, original)

    def redirected(*arguments: Any, **named: Any) -> Any:
        called: Any = "hook"  # a constant, which is replaced: a global would show in the library
        return called(arguments, named)

    _ours.add(id(function))
    # For inspect; and for torch.compile, which cannot read our code: it leaves the call to Python.
    told = {
        "__wrapped__": original,
        "__signature__": inspect.signature(original),
        "_torchdynamo_disable": True,
    }
    code = passed_over(redirected).__code__
    constants = tuple(hooked if each == "hook" else each for each in code.co_consts)
    function.__code__ = code.replace(
        co_consts=constants,
        co_name=function.__code__.co_name,
        co_qualname=function.__code__.co_qualname,
    )
    _leave_to_python(function.__code__)
    before = {name: vars(function)[name] for name in told if name in vars(function)}
    vars(function).update(told)

    def undo() -> None:
        _ours.discard(id(function))
        function.__code__ = original.__code__
        for name in told:
            vars(function).pop(name, None)
        vars(function).update(before)

    return undo


def _leave_to_python(code: types.CodeType) -> None:
    """Have torch.compile leave such code, and what that calls, to Python. Source: torch/csrc/dynamo/eval_frame.c
    `set_code_exec_strategy`, 2.13; older torch has none."""
    dynamo: Any = torch._C._dynamo.eval_frame
    if hasattr(dynamo, "set_code_exec_strategy"):
        skip = dynamo._FrameAction.SKIP
        dynamo.set_code_exec_strategy(code, dynamo._FrameExecStrategy(skip, skip))


def _replace(owner: Any, name: str, function: Any, hook: Hook) -> Undo:
    @functools.wraps(function)
    @passed_over
    def replaced(*arguments: Any, **named: Any) -> Any:
        return hook(function, arguments, named)

    is_inherited = name not in vars(owner)
    setattr(owner, name, replaced)

    def undo() -> None:
        if vars(owner).get(name) is not replaced:
            return  # somebody has wrapped it since
        if is_inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, function)

    return undo
