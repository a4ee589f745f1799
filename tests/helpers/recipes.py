"""The commands of docs/deploy.md, read from its text and run on this machine, so that the page stays correct."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from processes import Flower, free_port

PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"


class Recipe:
    """The code blocks of one section, with names, ports and folders of this machine."""

    def __init__(self, flower: Flower, heading: str, **replacements: str) -> None:
        self.flower = flower
        port = flower.address.split(":")[1]
        ports = {str(8100 + i): str(free_port()) for i in range(3)}
        folders = {"/tmp/client-": f"{flower.folder}/disk-", "/etc/fedmim": f"{flower.folder}"}
        folders["/var/lib/fedmim"] = f"{flower.folder}/disk-0"
        hosts = {"fl.example.org": "localhost", "0.0.0.0": "127.0.0.1", "8000": port}
        self._blocks = [
            (kind, replaced(text, hosts | ports | folders | replacements)) for kind, text in blocks(heading)
        ]

    def lines(self, *programs: str) -> list[str]:
        """The command lines of these programs, in the order of the page."""
        text = "\n".join(text for kind, text in self._blocks if kind == "sh")
        whole = re.sub(r"\\\n\s*", "", text).splitlines()
        found = [line for line in whole if line.partition(" ")[0] in programs]
        assert found, f"{PAGE.name}: there is no command {programs}"
        return found

    def configure(self) -> None:
        """Add the section's TOML to Flower's configuration."""
        with (self.flower.home / ".flwr" / "config.toml").open("a") as file:
            file.writelines(f"\n{text}" for kind, text in self._blocks if kind == "toml")

    def unit(self) -> str:
        """The systemd unit."""
        (text,) = (text for kind, text in self._blocks if kind == "text")
        return text

    def start(self, name: str, line: str) -> subprocess.Popen[bytes]:
        """Start a command line in the flower's folder, with its output in NAME.log."""
        return self.flower.shell(name, line)

    def run(self, name: str, *programs: str) -> None:
        """Run all command lines of these programs, one after the other, to a successful end."""
        for line in self.lines(*programs):
            process = self.start(name, line)
            self.flower.wait(lambda process=process: process.poll() is not None, 120, f"{line} did not end")
            assert process.returncode == 0, f"{line}\n{self.flower.log(name)}"


def blocks(heading: str) -> list[tuple[str, str]]:
    """The kind and text of each fenced block between a heading and the next of its level."""
    text = PAGE.read_text(encoding="utf-8")
    inside = re.split(rf"^{re.escape(heading)}$", text, flags=re.MULTILINE)[1]
    end = re.search(rf"^#{{2,{heading.index(' ')}}} ", without_fences(inside), re.MULTILINE)
    return re.findall(r"^```(\w+)\n(.*?)^```$", inside[: end.start() if end else None], re.MULTILINE | re.DOTALL)


def without_fences(text: str) -> str:
    """The text with its fenced blocks blanked, so that a comment in a block is no heading."""
    return re.sub(r"^```.*?^```$", lambda found: " " * len(found[0]), text, flags=re.MULTILINE | re.DOTALL)


def replaced(text: str, replacements: dict[str, str]) -> str:
    """Replace each key by its value, all at once: a value is not replaced again."""
    pattern = "|".join(re.escape(key) for key in sorted(replacements, key=len, reverse=True))
    return re.sub(pattern, lambda found: replacements[found[0]], text)
