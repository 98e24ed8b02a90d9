"""Reads the settings of libraries that samples may depend on, wherever in a program they were set."""

import sys

import torch


def modes() -> tuple[object, ...]:
    """Return settings of torch, Pillow, torchvision, MONAI, NumPy; defaults where not imported."""
    device = sys.modules.get("torch.utils._device")
    return (
        torch.get_default_dtype(),
        str(getattr(device, "CURRENT_DEVICE", None)),  # get_default_device() makes a tensor there
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.are_deterministic_algorithms_enabled(),
        _set("PIL.ImageFile", "LOAD_TRUNCATED_IMAGES", False),
        _set("PIL.Image", "MAX_IMAGE_PIXELS", 1024 * 1024 * 1024 // 4 // 3),
        _set("torchvision", "_image_backend", "PIL"),
        _set("monai.data.meta_obj", "_TRACK_META", True),
        str(np.geterr()) if (np := sys.modules.get("numpy")) else "",
    )


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


def _set(module: str, name: str, default: object) -> object:
    """Return a module's setting that samples may depend on; the default if nobody imported it."""
    return getattr(sys.modules.get(module), name, default)
