"""In the default tier, in every Python that a test starts: the collector passes over torch's import.

What `import torch` leaves is half a million objects that stay: to look through them again and again
while they are made, and at exit, is 0.8 of the 2.1 s that a script takes which imports torch and
ends. What the script itself makes is collected as ever. The full tier does without this file.
"""

import gc
import importlib.util
import sys

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


sys.meta_path.insert(0, _Torch())
