"""Has multiprocessing's fork server load what stoker's templates need, once, and starts it as soon as a
loader is iterated: it loads while the training process loads the rest.

Promise: standard library only; a server that runs already is left as it is.
"""

import multiprocessing
from typing import Any

LOADED = "stoker.worker.main"  # with torch: what a worker is made of
TEMPLATE = "stoker.local.started"


def begin(context: Any) -> None:
    """Start the server, if a context's processes come from it. context: None is the default.

    Raises what starting it raises, which torch would meet a moment later."""
    default = multiprocessing.get_start_method(True) or multiprocessing.get_all_start_methods()[0]
    method = default if context is None else context.get_start_method()
    if method != "forkserver":
        return
    from multiprocessing import forkserver  # of no use to a script that forks

    modules = getattr(forkserver._forkserver, "_preload_modules", None)
    if isinstance(modules, list) and TEMPLATE not in modules:
        forkserver.set_forkserver_preload([*modules, LOADED, TEMPLATE])
    forkserver.ensure_running()
