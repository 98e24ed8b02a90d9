"""Finds where this stoker was installed from, for messages that tell how to install it elsewhere.

Promise: names no package of an index, where `stoker` may be somebody else's.
"""

import json
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

PACKAGE = Path(__file__).resolve().parents[2]


def advice(python: str, extra: str = "") -> str:
    """Return a command that installs this stoker for `python`, with one of its extras; if its
    origin is unknown, a sentence that says what to install."""
    source = requirement(_direct_url(), PACKAGE, extra)
    if source is None:
        with_extra = f", with [{extra}] behind it" if extra else ""
        return (
            f"{shlex.quote(python)} -m pip install the wheel or checkout that you installed "
            f"stoker from{with_extra}"
        )
    return f"{shlex.quote(python)} -m pip install {shlex.quote(source)}"


def requirement(direct_url: dict[str, Any] | None, package: Path, extra: str = "") -> str | None:
    """Return the path or URL to give to pip; None if it is unknown.

    direct_url: what pip wrote down while installing. Source: PEP 610.
    """
    extras = f"[{extra}]" if extra else ""
    url = urlsplit(direct_url["url"] if direct_url else "")
    if url.scheme == "file":
        path = Path(unquote(url.path))
        return f"{path}{extras}" if path.exists() else None
    if direct_url and url.scheme:
        vcs = direct_url.get("vcs_info")
        whole = f"{vcs['vcs']}+{url.geturl()}@{vcs['commit_id']}" if vcs else url.geturl()
        return f"stoker{extras} @ {whole}"
    checkout = package.parents[1]
    is_checkout = package.parent.name == "src" and (checkout / "pyproject.toml").is_file()
    return f"{checkout}{extras}" if is_checkout else None


def _direct_url() -> dict[str, Any] | None:
    """Return what pip noted when it installed this package; None if it noted nothing, or no URL."""
    try:
        installed = distribution("stoker")
        text = installed.read_text("direct_url.json")
    except (PackageNotFoundError, OSError):
        return None
    found: dict[str, Any] | None = json.loads(text) if text else None
    here = Path(str(installed.locate_file("stoker"))).resolve() == PACKAGE
    editable = found is not None and found.get("dir_info", {}).get("editable", False)
    if found is None or not (here or (editable and _holds(found["url"], PACKAGE))):
        return None
    return found


def _holds(url: str, package: Path) -> bool:
    return Path(unquote(urlsplit(url).path)).resolve() in package.parents
