"""The tripwire: every target of ours in torch still looks as known, and every patch comes off."""

import dataclasses

import pytest
import torch.utils.data.dataloader as torch_loader
import torch.utils.data.sampler as torch_sampler

from stoker.config import Settings
from stoker.intercept import patches, run
from stoker.intercept.patches import PATCHES, PATCHES_OF_DDP, Patch

QUIET = Settings(quiet=True)


@pytest.fixture(autouse=True)
def undone():
    patches.restore()
    yield
    patches.restore()


def targets():
    return [patch.target() for patch in PATCHES]


@pytest.mark.parametrize("patch", [*PATCHES, *PATCHES_OF_DDP], ids=str)
def test_a_target_still_looks_as_known(patch):
    assert patch.is_known()


@pytest.mark.parametrize("patch", [*PATCHES, *PATCHES_OF_DDP], ids=str)
def test_a_patch_says_why(patch):
    assert patch.why and str(patch).startswith("torch.")


def test_installing_replaces_every_target_and_restoring_gives_back_the_identical_ones():
    before = targets()
    patches.install(QUIET)
    installed = targets()
    assert all(new is not old for new, old in zip(installed, before, strict=True))
    assert [new.__wrapped__ for new in installed] == before
    patches.restore()
    assert all(new is old for new, old in zip(targets(), before, strict=True))


def test_ddp_is_replaced_whole_and_given_back():
    before = [patch.target() for patch in PATCHES_OF_DDP]
    for _ in range(2):
        patches.install_ddp()
    installed = [patch.target() for patch in PATCHES_OF_DDP]
    assert [new.__wrapped__ for new in installed] == before
    patches.restore()
    assert [patch.target() for patch in PATCHES_OF_DDP] == before


@pytest.mark.parametrize("gradients", [None, "4bit"])
def test_where_one_of_ddps_looks_different_all_are_left(monkeypatch, capsys, gradients):
    """With a line where something was asked of them."""
    *known, last = PATCHES_OF_DDP
    odd = dataclasses.replace(last, signature="self, something")
    monkeypatch.setattr(patches, "PATCHES_OF_DDP", (*known, odd))
    monkeypatch.setattr(run, "settings", Settings(gradients=gradients))
    before = [patch.target() for patch in known]
    patches.install_ddp()
    assert [patch.target() for patch in known] == before
    line = f"stoker: {odd} looks different in this torch: gradients are left to DDP\n"
    assert capsys.readouterr().err == (line if gradients else "")


@pytest.mark.parametrize(("signature", "is_known"), [("self, kind", True), ("self, sort", False)])
def test_a_function_that_is_passed_all_may_have_more_arguments_than_are_known(signature, is_known):
    patch = Patch(__name__, "later", signature, "", why="", passes_on=True)
    assert patch.is_known() is is_known
    assert not dataclasses.replace(patch, passes_on=False).is_known()


def later(self, kind, lazy_bucket_allocation=False):
    """As of a torch that is not out yet."""


def test_installing_twice_wraps_once():
    before = targets()
    patches.install(QUIET)
    patches.install(QUIET)
    assert [new.__wrapped__ for new in targets()] == before


def test_restoring_twice_is_restoring_once():
    before = targets()
    patches.install(QUIET)
    patches.restore()
    patches.restore()
    assert all(new is old for new, old in zip(targets(), before, strict=True))


def test_a_patched_function_keeps_its_name_and_signature():
    names = [(t.__name__, t.__qualname__) for t in targets()]
    patches.install(QUIET)
    assert [(t.__name__, t.__qualname__) for t in targets()] == names
    assert all(patch.is_known() for patch in PATCHES)


def test_a_target_that_looks_different_is_left_alone_with_one_line(monkeypatch, capsys):
    strange, *others = PATCHES
    odd = dataclasses.replace(strange, signature="self, something, new")
    monkeypatch.setattr(patches, "PATCHES", (odd, *others))
    before = strange.target()
    patches.install(Settings())
    patches.install(Settings())
    assert strange.target() is before
    assert all(hasattr(patch.target(), "__wrapped__") for patch in others)
    said = capsys.readouterr().err.splitlines()
    assert said == [f"stoker: {strange} looks different in this torch: left as it is"]


def test_a_function_that_we_stand_in_for_must_be_made_of_what_we_know():
    (patch,) = (patch for patch in PATCHES if patch.made_of)
    other = dataclasses.replace(patch, made_of=(*patch.made_of, "multinomial"))
    assert patch.is_known() and not other.is_known()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("torch.utils.data.no_such_module", "DataLoader.__iter__"),
        ("torch.utils.data.dataloader", "NoSuchLoader.__iter__"),
        ("torch.utils.data.dataloader", "DataLoader.no_such_method"),
    ],
)
def test_a_target_that_is_gone_is_not_known(module, name):
    assert not Patch(module, name, "self", "stoker.intercept.loader:iterate", "a test").is_known()


def test_a_script_may_put_its_own_class_in_the_place_of_torchs(monkeypatch):
    """A subclass, from which and beside which it goes on deriving."""
    torchs = torch_loader.DataLoader
    patches.install(QUIET)
    own = type("Own", (torchs,), {})
    monkeypatch.setattr(torch_loader, "DataLoader", own)
    for base in (own, torchs):
        assert type("Further", (base,), {}).__mro__[1] is base
    patches.restore()
    assert patches.HOOK not in vars(torchs)


def test_the_table_owns_every_attribute_that_installing_changes():
    watched = (torch_loader.DataLoader, torch_loader._BaseDataLoaderIter,
               torch_loader._MultiProcessingDataLoaderIter, torch_loader,
               torch_sampler.RandomSampler, torch_sampler)  # fmt: skip
    before = [dict(vars(owner)) for owner in watched]
    patches.install(QUIET)
    changed = {
        name
        for owner, old in zip(watched, before, strict=True)
        for name, value in vars(owner).items()
        if old.get(name) is not value
    }
    assert changed == {patch.attribute for patch in PATCHES} | {patches.HOOK}
