"""Notebooks become pages: text, code, and the outputs that are stored in them. Nothing is run.

The alternative text of a picture is `alt` in the metadata of its cell.
"""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import Any

FENCE = "`````"


def on_files(files: Any, config: Any) -> Any:
    """Add a page beside each notebook, which can still be downloaded."""
    from mkdocs.structure.files import File

    for file in [each for each in files if each.src_uri.endswith(".ipynb")]:
        page = with_download(markdown(json.loads(file.content_string)), Path(file.src_uri).name)
        files.append(File.generated(config, f"{file.src_uri[:-6]}.md", content=page))
    return files


def with_download(page: str, name: str) -> str:
    """The page with a link to the notebook below its title."""
    title, _, rest = page.partition("\n")
    return f'{title}\n\n<p><a href="{name}" download>Download this notebook</a></p>\n{rest}'


def markdown(notebook: dict[str, Any]) -> str:
    """The cells of a notebook and their outputs as Markdown."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
        elif cell["cell_type"] == "code" and text.strip():
            parts.append(f"{FENCE}python\n{text}\n{FENCE}")
            alt = cell.get("metadata", {}).get("alt", "")
            parts += [shown for each in cell["outputs"] if (shown := output(each, alt))]
    return "\n\n".join(parts) + "\n"


def output(stored: dict[str, Any], alt: str = "") -> str:
    """One output of a cell: a picture with the cell's alternative text, else HTML, else text."""
    if stored["output_type"] == "error":
        return fenced("\n".join(stored["traceback"]))
    if stored["output_type"] == "stream":
        return fenced("".join(stored["text"]))
    data = {kind: "".join(text) for kind, text in stored["data"].items() if not isinstance(text, dict)}
    if "image/png" in data:
        picture = data["image/png"].replace("\n", "")
        return f'<p><img alt="{escape(alt)}" src="data:image/png;base64,{picture}"></p>'
    if "text/html" in data:
        html = re.sub(r"<(style|script)\b.*?</\1>", "", data["text/html"], flags=re.DOTALL)
        return '<div class="output">' + re.sub(r"\n\s*", "\n", html).strip() + "</div>"
    return data.get("text/markdown") or fenced(data.get("text/plain", ""))


def fenced(text: str) -> str:
    """Text as a block, without the colours of a terminal."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text).strip("\n")
    return f"{FENCE}text\n{plain}\n{FENCE}" if plain else ""
