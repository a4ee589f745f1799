"""The command `fedmim`: a table of commands, each imported when it is called."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from pkgutil import resolve_name

from fedmim import __version__
from fedmim.errors import UserError, unknown
from fedmim.signals import exit_code, ignore_signals, terminable

COMMANDS = {
    "compare": (
        "fedmim.commands.compare:compare_command",
        "train several methods on the same clients; writes a table, a page, a figure and results.json",
    ),
    "run": ("fedmim.commands.run:run", "train one method"),
    "reproduce": (
        "fedmim.reproduction.command:reproduce",
        "reproduce the paper's tables and figures, with its numbers next to the measured ones",
    ),
    "tune": (
        "fedmim.commands.tune:tune_command",
        "search a method's learning rate and hyper-parameters on held-out training data",
    ),
    "report": (
        "fedmim.commands.report:report",
        "write a page about runs: one HTML file with charts, verdict, tables and commands",
    ),
    "plot": ("fedmim.commands.report:plot", "write the same charts as PNG and SVG for a paper"),
    "watch": ("fedmim.commands.report:watch", "serve a live page about runs in progress on this machine"),
    "methods": ("fedmim.commands.methods:methods", "list the methods with their options and references"),
    "advise": ("fedmim.commands.advise:advise_command", "which method to use, from the nearest experiments"),
    "data": (
        "fedmim.commands.data:data",
        "list the data sets and which are found; `fedmim data fetch NAME` downloads one",
    ),
    "theory": (
        "fedmim.commands.theory:theory",
        "apply the convergence theorems: learning rates, bounds, constants of a task, advice",
    ),
    "flower": (
        "fedmim.flower.new:command",
        "`fedmim flower new DIR` creates a Flower app with the same methods for real machines",
    ),
}
FIRST_STEPS = """\
first steps:
  fedmim compare                                        ten methods on MNIST-1D, under a minute
  fedmim compare --methods fedavg,fedmim --seeds 0,1,2  two of them, three seeds
  fedmim run --method fedmim --alpha 0.6,0.3 --out runs/a
  fedmim run --resume --out runs/a                      resume a stopped run
  fedmim COMMAND --help                                 all options of a command
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. A user error prints one line and returns exit code 2, a diverged run 3."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(overview(), end="")
        return 0
    if words[0] == "--version":
        print(f"fedmim {__version__}")
        return 0
    try:
        if words[0] not in COMMANDS:
            raise unknown("command", words[0], COMMANDS)
        warnings.showwarning = lambda message, *_, **__: print(f"fedmim: warning: {message}", file=sys.stderr)
        with terminable():
            resolve_name(COMMANDS[words[0]][0])(words[1:])
    except UserError as error:
        print(f"fedmim: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the reader closed the pipe, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"fedmim: {error.filename or 'file'}: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        print("; ".join(["fedmim: stopped", *getattr(stop, "__notes__", [])]), file=sys.stderr)
        return exit_code(stop)
    return 0


def program() -> None:
    """The entry point of the program."""
    if "JPY_PARENT_PID" in os.environ:  # started by `!fedmim` in a notebook
        os.environ.setdefault("TTY_INTERACTIVE", "0")  # the notebook would store every frame of a live table
        os.environ["MPLBACKEND"] = "agg"  # the notebook's own may not be installed here
    code = main()
    ignore_signals()  # everything is written; a second Ctrl-C would only print a traceback
    sys.exit(code)


def overview() -> str:
    """The text of `fedmim --help`."""
    lines = "\n".join(f"  {name:10}{summary}" for name, (_, summary) in COMMANDS.items())
    return (
        "usage: fedmim COMMAND [OPTIONS]\n\nFederated learning on heterogeneous data: FedMIM and its baselines.\n\n"
        f"commands:\n{lines}\n\n{FIRST_STEPS}"
    )
