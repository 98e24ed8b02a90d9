"""A dataset that prints, on stdout and stderr; and a stdout that nobody reads where `stuck` is asked."""

import sys
import time
import warnings

import torch
from away_hosts import is_on_a_host, num_away, tell, wait_for_hosts
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore", message="This DataLoader will create")
# Nobody reads: more than a pipe, and all that may be on its way.
MORE = [f"{k} {'x' * 100}" for k in range(400)] if "stuck" in sys.argv else []


class Prints(Dataset):
    def __len__(self):
        return 300

    def __getitem__(self, index):
        time.sleep(0.004)
        if not MORE:  # whoever prints here waits, as under torch
            print(f"sample {index}")
        for more in MORE if is_on_a_host() else ():
            print(more)
        print(f"seen {index}", file=sys.stderr)
        return index, torch.rand(2)


def begins(worker):
    print(f"worker {worker} begins")


torch.manual_seed(1)
iterator = iter(DataLoader(Prints(), 4, num_workers=3, worker_init_fn=begins, shuffle=True))
wait_for_hosts(iterator, 2)
total = sum(float(values.sum()) for _, values in iterator)
tell(f"away {num_away(iterator)}")
tell(f"total {total}")
print("the end")
