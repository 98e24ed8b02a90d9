"""Batches are pickled, copied and saved by the trainer, and ask their storage what it is."""

import copy
import io
import pickle

import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.arange(4 * 20_000).view(4, 20_000), torch.arange(4))
for workers in (0, 2):
    for batch in DataLoader(data, 2, num_workers=workers):
        again = pickle.loads(pickle.dumps(batch))
        file = io.BytesIO()
        torch.save(batch, file)
        twin = copy.deepcopy(batch)
        twin[0].zero_()
        print(
            len(pickle.dumps(batch)),
            file.tell(),
            [torch.equal(a, b) for a, b in zip(again, batch, strict=True)],
        )
        print([(x.untyped_storage().nbytes(), x.is_pinned(), x.storage_offset()) for x in batch])
        print(batch[0].sum().item(), batch[0].numpy().flags.writeable, batch[0].data_ptr() % 8)
