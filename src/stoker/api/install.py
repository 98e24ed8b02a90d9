"""Puts stoker into a Python that was not started by `stoker run`, as a notebook's kernel.

Promise: works before and after torch was imported, and for loaders that exist already; a setting
that cannot be raises ConfigError and changes nothing; uninstalling leaves torch as it was.
"""

import sys
from typing import Any

from stoker.cli.flags import meant
from stoker.cli.settings import find
from stoker.config import Settings
from stoker.errors import ConfigError


def install(values: dict[str, Any]) -> None:
    """Patch torch with these settings; what is not given comes from variables and files."""
    settings = find({name: _as_text(name, value) for name, value in values.items()}).settings
    from stoker.intercept import arm

    arm.arm_with(settings)


def uninstall() -> None:
    """Give torch its own functions back, and write the report that was asked for, if any."""
    from stoker.intercept import arm

    run = sys.modules.get("stoker.intercept.run")
    if run is not None and run.has_recorder():
        from stoker.intercept.meter import settle_all

        settle_all()
        run.recorder().finish()
    arm.disarm()


def _as_text(name: str, value: Any) -> str:
    if name not in Settings._fields:
        raise ConfigError(f"install: no setting {name!r}{meant(name, Settings._fields)}")
    if name == "mount":  # a process that runs cannot be given another mount namespace
        raise ConfigError(
            "install: mount is for stoker run: stoker run --mount PATH=URL -- COMMAND"
        )
    return "1" if value is True else str(value)


def is_installed() -> bool:
    patches = sys.modules.get("stoker.intercept.patches")
    return patches is not None and bool(patches.are_applied())
