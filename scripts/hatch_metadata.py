"""Write what an index shows of stoker: the README with links that work there, and the project's addresses.

Promise: with `repository` set in pyproject.toml each relative link and picture of the README is absolute; without,
  as long as there is no public address, links are their text and pictures are left out: none is dead.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\[\]]*)\]\((?!\w+:|#)([^)\s]+)\)")
PAGES = {
    "Documentation": "blob/main/docs/tutorial.md",
    "Changelog": "blob/main/CHANGELOG.md",
    "Issues": "issues",
}


class AddressesHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        repository = self.config["repository"].rstrip("/")
        text = (Path(self.root) / "README.md").read_text()
        shown = with_absolute_links(text, repository)
        metadata["readme"] = {"content-type": "text/markdown", "text": shown}
        if repository:
            more = {name: f"{repository}/{page}" for name, page in PAGES.items()}
            metadata["urls"] = {"Source": repository, **more}


def with_absolute_links(text: str, repository: str) -> str:
    def led(link: re.Match[str]) -> str:
        bang, shown, where = link.groups()
        if not repository:
            return "" if bang else shown
        kind = "raw" if bang else "tree" if where.endswith("/") else "blob"
        return f"{bang}[{shown}]({repository}/{kind}/main/{where})"

    return LINK.sub(led, text)
