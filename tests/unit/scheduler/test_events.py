from stoker.scheduler.events import Finish, Kill
from stoker.scheduler.tasks.slot import Role, Slot


def test_what_has_the_same_fields_is_equal_only_within_its_kind():
    slot = Slot(Role.CHAIN, 0)
    assert Kill(slot) == Kill(slot) and hash(Kill(slot)) == hash(Kill(slot))
    assert Kill(slot) != Finish(slot) and not Kill(slot) == Finish(slot)  # noqa: SIM201  # both operators
