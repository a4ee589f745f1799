"""The command `fedmim`: a table of commands, each in a file of its own that is imported when it is called."""

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
        "fedmim.commands.compare:compare",
        "train several methods on the same clients; a table, a page, a figure and results.json",
    ),
    "run": ("fedmim.commands.run:run", "train one method"),
    "reproduce": (
        "fedmim.reproduction.command:reproduce",
        "the paper's tables and figures, its own numbers beside the measured ones",
    ),
    "tune": (
        "fedmim.commands.tune:tune",
        "search a method's learning rate and hyper-parameters on held-out training data",
    ),
    "report": (
        "fedmim.commands.report:report",
        "the page of any runs: one HTML file with charts, verdict, tables and commands",
    ),
    "plot": ("fedmim.commands.report:plot", "the same charts as PNG and SVG for a paper"),
    "watch": ("fedmim.commands.report:watch", "the page of runs in progress, served on this machine"),
    "methods": ("fedmim.commands.methods:methods", "list the methods with their options and references"),
    "data": (
        "fedmim.commands.data:data",
        "list the data sets and what is found; `fedmim data fetch NAME` downloads one",
    ),
    "theory": (
        "fedmim.commands.theory:theory",
        "what the convergence theorems say: learning rates, bounds, constants of a task, advice",
    ),
    "flower": (
        "fedmim.flower.new:command",
        "`fedmim flower new DIR` starts a Flower app of your own: the same methods on real machines",
    ),
}
FIRST_STEPS = """\
first steps:
  fedmim compare                                        the paper's seven methods on digits, about a minute
  fedmim compare --methods fedavg,fedmim --seeds 0,1,2  two of them, three seeds
  fedmim run --method fedmim --alpha 0.6,0.3 --out runs/a
  fedmim run --resume --out runs/a                      go on where a run was stopped
  fedmim COMMAND --help                                 all options of a command
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; a mistake of the user is one line and exit code 2."""
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
        return 2
    except BrokenPipeError:  # the reader of our output went away, as with `| head`
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
    """The command as a program of its own."""
    code = main()
    ignore_signals()  # all is said and written; a second Ctrl-C would only add a traceback
    sys.exit(code)


def overview() -> str:
    """What `fedmim --help` prints."""
    lines = "\n".join(f"  {name:10}{summary}" for name, (_, summary) in COMMANDS.items())
    return (
        "usage: fedmim COMMAND [OPTIONS]\n\nFederated learning on heterogeneous data: FedMIM and its baselines.\n\n"
        f"commands:\n{lines}\n\n{FIRST_STEPS}"
    )
