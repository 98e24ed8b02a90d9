"""torchdata's StatefulDataLoader, stopped in mid-epoch and resumed."""

import material
from torchdata.stateful_dataloader import StatefulDataLoader


def loader_of(dataset) -> StatefulDataLoader:
    return StatefulDataLoader(dataset, 16, shuffle=True, num_workers=2)


def main() -> None:
    material.begin()
    dataset, model = material.Pictures(), material.Tiny()
    loader = loader_of(dataset)
    for number, batch in enumerate(loader):
        material.tell("sum", number, batch[0].sum())
        if number == 3:
            break
    state = loader.state_dict()
    second = loader_of(dataset)
    second.load_state_dict(state)
    material.train(second, model)
    material.end()


if __name__ == "__main__":
    main()
