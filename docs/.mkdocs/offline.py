"""A page that would load a script, a style, a picture or a font from elsewhere is reported, which fails `make docs`."""

from __future__ import annotations

import logging
import re
from typing import Any

LOG = logging.getLogger("mkdocs.plugins.offline")
TAG = re.compile(r"<(?:script|link|img|iframe|source|video|audio)\b[^>]*>")


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Report what a page loads from elsewhere."""
    for tag in foreign(output):
        LOG.warning("%s loads from elsewhere: %s", page.file.src_uri, tag)
    return output


def foreign(html: str) -> list[str]:
    """The tags that load something from another address."""
    return [tag for tag in TAG.findall(html) if re.search(r"""\b(?:src|href)=["']?(?:https?:)?//""", tag)]
