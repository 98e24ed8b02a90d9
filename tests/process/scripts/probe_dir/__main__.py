"""Prints all that a script can find out about how it is run."""

import atexit
import gc
import multiprocessing
import os
import signal
import sys
import threading
import warnings


def show(when):
    print(when, sys.argv, __name__, globals().get("__file__"), os.getcwd())  # noqa: PTH109
    print(sys.path, sys.flags, sys.executable, sys.orig_argv)
    print(
        [
            (s.name, str(signal.getsignal(s)))
            for s in sorted(signal.valid_signals() - {32, 33})
            if isinstance(s, signal.Signals)
        ]
    )
    print(signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getitimer(signal.ITIMER_REAL))
    print([t.name for t in threading.enumerate()], gc.get_threshold(), sys.getswitchinterval())
    print(sys.excepthook is sys.__excepthook__, sys.unraisablehook is sys.__unraisablehook__)
    print(sys.stdout.encoding, sys.stdout.line_buffering, sys.stdin.isatty(), sys.gettrace())
    print(sorted(k for k in os.environ if not k.startswith("STOKER_")))
    print(sorted(os.listdir("/proc/self/fd")), os.umask(0o22))  # noqa: PTH208
    print(len(warnings.filters), multiprocessing.get_start_method(allow_none=True))
    print(sorted(vars(sys.modules["__main__"]).keys() - {"show"}), os.getsid(0) == os.getpid())


show("at first")
print(sys.stdin.read())
import torch  # noqa: E402
import torch.utils.data  # noqa: E402

show("with torch")
print([type(finder).__name__ for finder in sys.meta_path], atexit._ncallbacks() > 0)
print(torch.get_num_threads(), torch.initial_seed() > 0, torch.utils.data.DataLoader.__module__)
sys.exit(int(sys.argv[-1]) if sys.argv[-1].isdecimal() else 0)
