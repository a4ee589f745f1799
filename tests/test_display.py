"""The line that is updated in place: on a terminal, in a notebook (with a stand-in for IPython), and elsewhere."""

import io
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from rich.console import Console

from fedmim.display import LiveLine, html_table, short_repr


@pytest.fixture
def clock(monkeypatch):
    """The time in seconds, as a list with one item."""
    now = [0.0]
    monkeypatch.setattr("fedmim.display.time.monotonic", lambda: now[0])
    return now


class Notebook:
    """The outputs of a cell. IPython gives an output with an id a handle to update it."""

    def __init__(self):
        self.outputs = []

    def display(self, data, *, raw, display_id):
        assert raw
        assert display_id
        self.outputs.append([data["text/plain"]])
        states = self.outputs[-1]
        return SimpleNamespace(update=lambda data, raw: states.append(data["text/plain"]))


@pytest.fixture
def notebook(monkeypatch):
    found = Notebook()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=found.display))
    return found


def show_each_second(clock, console, after=2.0):
    with LiveLine(after, console) as line:
        for second in range(5):
            clock[0] = float(second)
            line.show(f"at {second}")
        line.show("the end")  # too soon after the last update, so it waits for the end


def test_a_notebook_has_one_output_that_is_updated(clock, notebook):
    show_each_second(clock, Console(force_jupyter=True))
    assert [list(dict.fromkeys(states)) for states in notebook.outputs] == [["at 2", "at 3", "at 4", "the end"]]


def test_what_ends_in_time_shows_nothing(clock, notebook):
    show_each_second(clock, Console(force_jupyter=True), after=5.0)
    assert notebook.outputs == []


def test_a_terminal_has_one_line_and_the_last_text_stays(clock):
    file = io.StringIO()
    show_each_second(clock, Console(file=file, force_terminal=True, color_system=None, width=40))
    frames = file.getvalue().split("\x1b[2K")
    assert "at 1" not in file.getvalue()
    assert [frames[0].endswith("at 2\r"), frames[-1].startswith("the end\n")] == [True, True]
    assert file.getvalue().count("\n") == 1


def test_a_long_line_is_cut_at_the_width_of_the_terminal(clock):
    file = io.StringIO()
    with LiveLine(console=Console(file=file, force_terminal=True, color_system=None, width=10)) as line:
        line.show("0123456789abcdef")
    assert "012345678…" in file.getvalue()
    assert "a" not in file.getvalue().replace("\x1b", "")


def test_a_file_gets_nothing(clock):
    file = io.StringIO()
    show_each_second(clock, Console(file=file))
    assert file.getvalue() == ""


def test_a_redirected_stdout_keeps_what_is_printed(clock, monkeypatch):
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    with LiveLine(console=Console(file=err, force_terminal=True)) as line:
        line.show("text")
        print("printed")
    assert out.getvalue() == "printed\n"
    assert "printed" not in err.getvalue()


def test_the_line_ends_with_an_error(clock, notebook):
    def fail():
        with LiveLine(console=Console(force_jupyter=True)) as line:
            line.show("first")
            line.show("last")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert notebook.outputs == [["first", "first", "last"]]


def test_a_table_escapes_its_cells():
    assert html_table(["a<b"], [[1.5], ["&"]]) == (
        "<table><tr><th>a&lt;b</th></tr><tr><td>1.5</td></tr><tr><td>&amp;</td></tr></table>"
    )


def test_a_short_repr_has_the_fields_without_default_and_the_changed_ones():
    @dataclass
    class Thing:
        needed: float
        kept: int = 1
        changed: str = "a"

    assert short_repr(Thing(0.123456, changed="b")) == "Thing(needed=0.123456, changed='b')"
    assert short_repr(Thing(0.123456), lambda value: f"{value:.1f}") == "Thing(needed=0.1)"
