"""In the default tier, in every Python that a test starts: the collector passes over torch's import.

What `import torch` leaves is half a million objects that stay: to look through them again and again
while they are made, and at exit, is 0.8 of the 2.1 s that a script takes which imports torch and
ends. What the script itself makes is collected as ever. Up to Python 3.13 the full tier does without this file.

From 3.14 on, in both tiers: a script without `if __name__ == "__main__"`, or with a lambda, has fork by
default, as before; under forkserver torch itself cannot start its workers.
"""

import gc
import importlib.util
import sys
from pathlib import Path

gc.disable()


class _Torch:
    """Finds torch as it would be found without this, and has the collector begin after its import."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                try:
                    execute(module)
                finally:
                    gc.freeze()
                    gc.enable()

            spec.loader.exec_module = exec_module
        return spec


def _takes_fork_for_granted():
    """Whether this Python was started to run a script, and that has no guard or what cannot be pickled."""
    word = next((w for w in sys.orig_argv[1:] if w in ("-c", "-m") or w.endswith(".py")), "-c")
    script = Path(word)
    if not script.is_file():
        return False
    text = script.read_text(errors="replace")
    return "__main__" not in text or "lambda" in text


def fork_by_default():
    from multiprocessing import context

    context._default_context._default_context = context._concrete_contexts["fork"]


sys.meta_path.insert(0, _Torch())
if sys.version_info >= (3, 14) and _takes_fork_for_granted():
    fork_by_default()
