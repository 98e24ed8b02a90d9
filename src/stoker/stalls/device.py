"""Knows whether a GPU is behind: still at work that it was given before the training thread's last mark.

A training thread runs ahead of its GPU. While that computes nobody waits for data, though the thread does; and a copy that
waits for its turn there copies nothing yet. A mark is an event of CUDA's on the thread's stream, made where a batch is asked
for and where it is handed out.
Promise: on the GPU there is nothing of ours but events; none is in a graph that the script captures, and to ask after one
breaks no capture; what fails is not tried again.
Owner: the training thread marks; any thread may ask.
"""

import ctypes
import sys
from typing import Any

from stoker import speak

# Of CUDA's driver (CUDA Driver API: Stream Management, Event Management).
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED: what this thread asks ends no capture of another's
_NOT_READY = 600  # CUDA_ERROR_NOT_READY


class Marks:
    """Marks of one process, and whether its GPU has reached the last one."""

    def __init__(self) -> None:
        self._events: dict[int, Any] = {}  # by device
        self._driver: Any = None
        self._last = 0  # the event that was last recorded, as the driver knows it; 0: none
        self._has_failed = False

    def mark(self) -> None:
        """Mark this moment on the current stream: 3 us; nothing where no GPU of NVIDIA's is in use."""
        torch: Any = sys.modules.get("torch")
        if self._has_failed or torch is None:
            return
        try:
            if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
                self._record(torch)
        except Exception as error:  # of a build without CUDA, of a driver that is none of NVIDIA's
            if speak.raised_by_handler(error):
                raise
            self._has_failed = True
            self._last = 0

    def _record(self, torch: Any) -> None:
        if self._driver is None:
            self._driver = ctypes.CDLL("libcuda.so.1")
        device = torch.cuda.current_device()
        event = self._events.get(device)
        if event is None:
            # A script may compute on another one than the current: an event would take memory on this one.
            if not torch._C._cuda_hasPrimaryContext(device):
                return
            event = self._events[device] = torch.cuda.Event()
        event.record()
        self._last = event.cuda_event

    def is_behind(self) -> bool:
        """Return whether the GPU is still at what it was given before the last mark.

        Asks the driver, not torch: through that a thread that has used no GPU would take memory on the first one.
        """
        last = self._last
        if not last:
            return False
        mode = ctypes.c_int(_RELAXED)
        if self._driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)):
            return False
        return bool(self._driver.cuEventQuery(ctypes.c_void_p(last)) == _NOT_READY)
