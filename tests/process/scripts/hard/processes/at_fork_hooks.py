"""The script's own at-fork hooks run in order, may wait for a lock, and see which thread forks."""

import os
import threading

from torch.utils.data import DataLoader

lock, told, me = threading.Lock(), [], os.getpid()


def before():
    lock.acquire()
    told.append(threading.current_thread() is threading.main_thread())


def after():
    lock.release()


os.register_at_fork(before=before, after_in_parent=after, after_in_child=after)


def holds_lock_often():
    for _ in range(200):
        with lock:
            pass


for persistent in (False, True):
    thread = threading.Thread(target=holds_lock_often)
    thread.start()
    loader = DataLoader(range(8), 2, num_workers=2, persistent_workers=persistent)
    for _ in range(2):
        print([b.tolist() for b in loader])
    thread.join()
print(all(told), len(told) > 0, lock.locked())
