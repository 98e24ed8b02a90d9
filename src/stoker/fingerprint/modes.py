"""Reads the settings of Python and of libraries that samples may depend on, wherever in a program they were set.

Promise: each is in one of the lists here, and what is not imported yet has the value that it will have then.
Source: what CPython 3.14, torch 2.13, NumPy 2.4, Pillow 12, torchvision 0.28, MONAI 1.6 let a script set.
"""

import locale
import os
import re
import sys
import types
import warnings
from functools import cache, lru_cache
from typing import Any

import torch

from stoker.clock import time_zone

# Variables and functions that tell, by module and dotted name, and what they are where nobody set them.
_SETTINGS: tuple[tuple[str, str, object], ...] = (
    ("PIL.ImageFile", "LOAD_TRUNCATED_IMAGES", False), ("PIL.ImageFile", "MAXBLOCK", 1 << 16),
    ("PIL.Image", "MAX_IMAGE_PIXELS", 1024 * 1024 * 1024 // 4 // 3),
    ("PIL.ImageDraw", "ImageDraw.font", None),
    ("PIL.PngImagePlugin", "MAX_TEXT_CHUNK", 1 << 20), ("PIL.PngImagePlugin", "MAX_TEXT_MEMORY", 1 << 26),
    ("PIL.GifImagePlugin", "LOADING_STRATEGY.value", 0), ("PIL.TiffImagePlugin", "READ_LIBTIFF", False),
    ("PIL.AvifImagePlugin", "DECODE_CODEC_CHOICE", "auto"),
    ("torchvision", "_image_backend", "PIL"), ("torchvision", "_video_backend", "pyav"),
    ("torchvision.tv_tensors._torch_function_helpers", "_FORCE_TORCHFUNCTION_SUBCLASS.__len__", 5),
    ("monai.data.meta_obj", "_TRACK_META", True), ("monai.config.deviceconfig", "USE_META_DICT", False),
    ("nibabel.arrayproxy", "KEEP_FILE_OPEN_DEFAULT", False), ("nibabel.imageglobals", "error_level", 40),
    ("pydicom.config", "use_DS_decimal", False), ("pydicom.config", "use_DS_numpy", False),
    ("pydicom.config", "use_IS_numpy", False), ("pydicom.config", "datetime_conversion", False),
    ("pydicom.config", "convert_wrong_length_to_UN", False),
    ("pydicom.config", "replace_un_with_known_vr", True),
    ("pydicom.config", "use_none_as_empty_text_VR_value", False),
    ("cv2", "useOptimized", True), ("csv", "field_size_limit", 1 << 17), ("calendar", "firstweekday", 0),
    ("sys", "get_int_max_str_digits", 4300), ("numpy", "geterr", None), ("numpy", "geterrcall", None),
    ("numpy", "get_printoptions", None), ("numpy", "getbufsize", 1 << 13),
    ("torch.distributions.distribution", "Distribution._validate_args", __debug__),
    ("torch.backends.opt_einsum", "enabled", None), ("torch.backends.opt_einsum", "strategy", None),
    ("torch._tensor_str", "PRINT_OPTS.__dict__", None),
)  # fmt: skip
# Functions of torch._C, those of them that this version has.
_OF_TORCH = (
    "is_grad_enabled", "is_inference_mode_enabled", "is_anomaly_enabled",
    "_get_deterministic_algorithms", "_get_deterministic_algorithms_warn_only",
    "_get_deterministic_fill_uninitialized_memory", "_get_float32_matmul_precision",
    "_get_mkldnn_enabled", "_get_mkldnn_deterministic", "_get_nnpack_enabled", "_get_qengine",
    "_get_cudnn_enabled", "_get_cudnn_benchmark", "_get_cudnn_deterministic", "_get_cudnn_allow_tf32",
    "_get_cublas_allow_tf32", "_get_cublas_allow_fp16_reduced_precision_reduction", "_get_warnAlways",
    "_get_cpu_allow_fp16_reduced_precision_reduction", "_get_onednn_allow_tf32",
)  # fmt: skip
_DECIMAL = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")
_PLAIN = (bool, int, str, type(None))
_DEPRECATES = "torchvision.io.image"
_DEPRECATED = "The image decoding and encoding capabilities of TorchVision"
_SMALLEST = sys.float_info.min


def modes() -> tuple[object, ...]:
    """Return the settings of libraries and of arithmetic, which also hold on other machines."""
    device = sys.modules.get("torch.utils._device")
    return (
        torch.get_default_dtype(),
        str(getattr(device, "CURRENT_DEVICE", None)),  # get_default_device() makes a tensor there
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        *(tell() for tell in _of_torch()),
        *(_setting(*each) for each in _SETTINGS),
        _decimal(),
        _pandas(),
        _SMALLEST / 2 == 0,  # torch.set_flush_denormal
    )


def surroundings() -> str:
    """Tell modes, and what is of this process: its folder, threads, flags, language, time and warnings. The
    environment is the caller's, who knows what of it lasts."""
    errors = [n for n, each in enumerate(warnings.filters) if each[0] == "error"]
    filters = warnings.filters[: errors[-1] + 1] if errors else []
    return repr(
        (
            os.getcwd(),  # noqa: PTH109  # text is all that is needed
            modes(),
            torch.get_num_threads(),
            torch.get_num_interop_threads(),
            sys.flags,
            locale.setlocale(locale.LC_ALL),
            time_zone(),
            _status("/etc/localtime"),
            [tuple(map(_whole, each)) for each in filters],  # a warning else gives no value
            _hears_deprecations(),
        )
    )


def is_unheard(frame: types.FrameType) -> bool:
    """Whether this code warns and nobody hears it: torchvision's image decoders have said at each call since
    0.29 that they are deprecated, which Python ignores unless somebody asks for it."""
    is_it = frame.f_code.co_name == "_warn_deprecated"
    return is_it and frame.f_globals.get("__name__") == _DEPRECATES and not _hears_deprecations()


def _hears_deprecations() -> bool:
    """Whether that would be printed, recorded or raised."""
    filters: Any = warnings.filters  # a module is text in Python's own
    for action, message, category, module, line in filters:
        is_of_it = module in (None, _DEPRECATES) or (
            isinstance(module, re.Pattern) and module.match(_DEPRECATES)
        )
        if issubclass(DeprecationWarning, category) and is_of_it and not line:
            if action != "ignore":
                return True
            if message is None or message.match(_DEPRECATED):
                return False
    return True


def has_modes() -> bool:
    """Whether something sees this thread's calls of torch: a mode (a default device, a profiler), a transform of
    torch.func, or torch.jit.trace."""
    c = torch._C
    return (
        c._len_torch_function_stack() > 0
        or c._len_torch_dispatch_stack() > 0
        or c._functorch.peek_interpreter_stack() is not None
        or c._get_tracing_state() is not None
    )


@cache
def _of_torch() -> tuple[Any, ...]:
    found = (getattr(torch._C, each, None) or getattr(torch, each, None) for each in _OF_TORCH)
    return tuple(filter(None, found))


def _setting(module: str, name: str, default: object) -> object:
    value: Any = sys.modules.get(module)
    if value is None:
        return default
    for each in name.split(".") if "." in name else (name,):
        value = getattr(value, each, default)
    if type(value) in _PLAIN:
        return value
    value = value() if callable(value) else value
    return str(value) if type(value) is dict else value


def _pandas() -> str:
    """Tell the options of pandas that somebody has set, by their names."""
    config: Any = sys.modules.get("pandas._config.config")
    return "{}" if config is None else _set_options(config, str(config._global_config))


@lru_cache(maxsize=4)
def _set_options(config: Any, _told: str) -> str:
    """_told: all options as they are at this moment."""
    found = {}
    for name, option in config._registered_options.items():
        root, last = config._get_root(name)
        if root[last] is not option.defval:
            found[name] = root[last]
    return str(found)


def _decimal() -> str:
    """Tell of the decimal context all but its flags, which say what was computed."""
    decimal = sys.modules.get("decimal")
    if decimal is None:
        return "28 ROUND_HALF_EVEN -999999 999999 1 0 InvalidOperation DivisionByZero Overflow"
    context = decimal.getcontext()
    traps = (each.__name__ for each, is_on in context.traps.items() if is_on)
    return " ".join((*(str(getattr(context, each)) for each in _DECIMAL), *traps))


def _whole(part: object) -> object:
    """Tell a part of a filter of warnings whole: the text of a long pattern cuts it off."""
    return (part.pattern, part.flags) if isinstance(part, re.Pattern) else part


def _status(path: str) -> object:
    try:
        status = os.stat(path)  # noqa: PTH116  # 1 us, not 5, in each decoder's call
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
