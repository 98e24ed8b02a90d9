"""Loaders inside coroutines: in the event loop's thread, in an executor, two at once."""

import asyncio

from torch.utils.data import DataLoader


async def direct(loader):
    got = []
    for batch in loader:
        got.append(batch.tolist())
        await asyncio.sleep(0)
    return got


async def in_executor(loader):
    loop, iterator, got = asyncio.get_running_loop(), iter(loader), []
    while (batch := await loop.run_in_executor(None, next, iterator, "end")) != "end":
        got.append(batch)
    return got


async def main():
    data = [str(k) for k in range(7)]
    for workers in (0, 2):
        loaders = [DataLoader(range(7), 2, num_workers=workers) for _ in range(2)]
        print(await asyncio.gather(*map(direct, loaders)))
        print(await in_executor(DataLoader(data, 2, num_workers=workers)))


asyncio.run(main())
