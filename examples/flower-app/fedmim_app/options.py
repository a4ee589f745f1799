"""The server's own options, from the run's configuration."""

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from flwr.app import Context

from fedmim.errors import UserError
from fedmim.experiments.toml_values import make


@dataclass(frozen=True)
class Options:
    """What the server does besides the method and its settings. pyproject.toml explains the values."""

    wait: float = 300.0
    timeout: float = 3600.0
    folder: str = ""
    resume: bool = False
    client_state: Literal["node", "server"] = "node"
    partition_keys: Literal["any", "first"] = "any"

    def __post_init__(self) -> None:
        for name, value in (("wait", self.wait), ("timeout", self.timeout)):
            if not value > 0:
                raise UserError(f"{name}: must be a number of seconds above 0, got {value}")
        if self.resume and not self.folder:
            raise UserError("resume: needs the folder of the run to resume; set folder")

    @classmethod
    def of(cls, context: Context) -> "Options":
        """From the run's configuration."""
        names = {field.name.replace("_", "-"): field.name for field in fields(cls)}
        given = {names[name]: value for name, value in context.run_config.items() if name in names}
        return make(cls, given, "run config")

    def place(self, context: Context) -> Path:
        """Where the model is saved: in `folder`, or below $XDG_STATE_HOME/fedmim/runs, usually in ~/.local/state."""
        if self.folder:
            return Path(self.folder).expanduser().absolute()
        home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        return Path(home).expanduser() / "fedmim" / "runs" / str(context.run_id)
