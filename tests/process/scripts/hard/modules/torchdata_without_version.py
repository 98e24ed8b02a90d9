"""A torchdata without __version__ lies beside the script, as a checkout does."""
# stays with torch

import sys
import types

from torch.utils.data import DataLoader

package = types.ModuleType("torchdata")
package.__path__ = []
inner = types.ModuleType("torchdata.stateful_dataloader")
inner.__path__ = []
module = types.ModuleType("torchdata.stateful_dataloader.stateful_dataloader")
sys.modules |= {m.__name__: m for m in (package, inner, module)}
SOURCE = """
from torch.utils.data import DataLoader

class StatefulDataLoader(DataLoader):
    next_iter_state = None

    def _get_iterator(self):
        if self.num_workers == 0:
            return super()._get_iterator()
        else:
            return super()._get_iterator()

    def check_worker_number_rationality(self):
        pass
"""
exec(SOURCE, module.__dict__)
inner.StatefulDataLoader = module.StatefulDataLoader
for kind in (DataLoader, inner.StatefulDataLoader):
    for workers in (0, 2):
        if kind is not DataLoader or not workers:
            print([b.tolist() for b in kind(range(6), 2, num_workers=workers)])
