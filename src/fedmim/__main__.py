"""`python -m fedmim` is the command `fedmim`."""

from fedmim.cli import program

program()
