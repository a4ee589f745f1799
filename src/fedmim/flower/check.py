"""`fedmim flower check DIR`: find a mistake in an app's configuration without a federation.

`flwr run` itself only finds keys that do not exist. All else is found by the app, when its process has started on the
server. An app that can be checked has a function `check(context)` next to its ServerApp. It raises UserError.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedmim.errors import UserError, unknown


def check_app(folder: Path, overrides: list[str]) -> str:
    """Check pyproject.toml with the text after `--run-config`. Returns a line about the run. Imports the app's code."""
    from flwr.app import Context, RecordDict
    from flwr.common.config import flatten_dict, get_project_config
    from flwr.supercore.object_ref import load_app

    try:
        app = get_project_config(folder)["tool"]["flwr"]["app"]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{folder}: is not a Flower app ({error}); create one with: fedmim flower new DIR") from error
    config = flatten_dict(app.get("config", {}))
    given = parse_overrides(overrides)
    for name in given:
        if name not in config:
            raise unknown("run config: setting", name, config)
    module = app["components"]["serverapp"].partition(":")[0]
    checks: Callable[[Context], Any] = load_app(f"{module}:check", MissingCheckError, folder)
    return str(checks(Context(0, 0, {}, RecordDict(), config | given)))


def parse_overrides(overrides: list[str]) -> dict[str, Any]:
    """The values after `--run-config`, read as Flower reads them; what Flower would ignore is an error."""
    from click import ClickException
    from flwr.common.config import parse_config_args

    for text in overrides:
        left = re.sub(r"(\S+?)=('[^']*'|\"[^\"]*\"|\S+)", "", text).strip()
        if left and not text.endswith(".toml"):
            raise UserError(f"run config: {left!r} is not of the form name=value, and Flower would ignore it")
    try:
        return parse_config_args(overrides or None)
    except (ClickException, OSError, ValueError) as error:
        reason = error.message if isinstance(error, ClickException) else error
        raise UserError(f"run config: {reason}") from error


class MissingCheckError(UserError):
    """The app has no function `check`."""

    def __init__(self, reason: str) -> None:
        reason = reason.split("\n")[0]
        super().__init__(f"check: {reason}; add a function check(context) to it, as in the app of fedmim flower new")
