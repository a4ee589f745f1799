"""A number and its spread stay in one line of a table: 48.13 ± 0.48."""

from __future__ import annotations

import re
from typing import Any

CELL = re.compile(r"<td.*?</td>", re.DOTALL)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Put spaces that do not break around ± in cells of tables."""
    return CELL.sub(lambda cell: cell[0].replace(" ± ", "\u00a0±\u00a0"), html)
