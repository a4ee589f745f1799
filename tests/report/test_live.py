"""The live display, by what it prints."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from fedmim.experiments.config import defaults
from fedmim.experiments.run import Run
from fedmim.report.live import SPARKS, Board, sparkline
from fedmim.report.progress import Lines, watching


def record(number, accuracy=0.5, seconds=2.0, refused=0):
    return SimpleNamespace(round=number, test_accuracy=accuracy, seconds=seconds, refused=refused)


def run(method="fedavg", label=None, seed=0, rounds=10):
    return Run.make(method, defaults("digits") | {"rounds": rounds, "seed": seed}, label)


def shown(board, width=120, height=40):
    file = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    console = Console(file=file, width=width, height=height, force_terminal=True, color_system=None)
    board.console = console
    with console.capture() as capture:
        console.print(board)
    return [line.rstrip() for line in capture.get().splitlines()]


def board_of(*runs):
    return Board(runs, Console(file=io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), width=120))


def test_each_method_has_its_rounds_accuracy_sparkline_and_time_left():
    board = board_of(run(), run("fedmim"))
    for number in range(1, 6):
        board.record(run(), record(number, accuracy=0.1 * number))
    first, second, foot = shown(board)
    assert first.startswith("FedAvg")
    assert "5/10  50.00 %" in first
    assert "▁" in first
    assert first.endswith("0:10 left")  # five more rounds of two seconds
    assert second.endswith("waiting")
    assert foot.startswith("0 of 2 runs, 5 of 20 rounds")
    assert foot.endswith("0:30 left")  # FedMIM's ten at the pace known so far


def test_a_label_counts_the_rounds_of_all_its_seeds_and_each_methods_own_pace():
    board = board_of(run(seed=0), run(seed=1), run("fedsam", seed=0), run("fedsam", seed=1))
    board.skip(run(seed=0))
    board.record(run("fedsam", seed=0), record(1, seconds=4.0))
    board.record(run(seed=1), record(1, seconds=2.0))
    assert board.seconds_left() == 9 * 2 + 19 * 4
    lines = shown(board)
    assert "11/20" in lines[0]
    assert "1/20" in lines[1]
    assert lines[-1].startswith("1 of 4 runs, 12 of 40 rounds")


def test_refused_uploads_are_counted_only_where_there_are_any():
    board = board_of(run(), run("fedmim"))
    board.record(run(), record(1))
    assert not any("refused" in line for line in shown(board))
    board.record(run(), record(2, refused=2))
    board.record(run(), record(3, refused=1))
    assert "3 refused" in shown(board)[0]
    assert "refused" not in shown(board)[1]


@pytest.mark.parametrize("width", [120, 100, 80, 60, 44])
def test_no_line_is_wider_than_the_terminal_and_no_figure_is_cut(width):
    board = board_of(run(label="a label that is longer than most of them are, by far", rounds=1000), run("fedmim"))
    board.record(run(label=next(iter(board.lines)), rounds=1000), record(123, accuracy=0.9876))
    lines = shown(board, width)
    assert max(map(len, lines)) <= width
    assert "123/1000" in lines[0]
    assert "98.76 %" in lines[0]
    assert "left" in lines[0]


def test_a_low_terminal_shows_the_present_method_and_how_many_more_there_are():
    runs = [run(label=f"method {number}") for number in range(30)]
    board = board_of(*runs)
    board.record(runs[20], record(1))
    lines = shown(board, height=10)
    assert len(lines) <= 10
    assert any(line.startswith("method 20 ") for line in lines)
    assert "and 23 more" in lines


def test_names_with_markup_are_shown_as_they_are():
    board = board_of(run(label="[red]a[/] <b>"))
    assert shown(board)[0].startswith("[red]a[/] <b>")


def test_a_sparkline_is_as_long_as_the_way_gone_and_as_high_as_the_curve():
    half = [(part / 100, part / 100) for part in range(1, 51)]
    text = sparkline(half, (0.0, 0.5))
    assert len(text) == SPARKS // 2
    assert text[0] == "▁"
    assert text[-1] == "█"
    assert list(text) == sorted(text)
    assert sparkline([], (0.0, 1.0)) == ""
    sparse = sparkline([(0.5, 0.0), (1.0, 1.0)], (0.0, 1.0))  # between evaluations the last one stands
    assert sparse.strip() == "▁" * (SPARKS // 2) + "█"
    assert set(sparkline(half, (0.0, 0.5), "_#")) == {"_", "#"}


def test_off_a_terminal_there_are_plain_lines_and_with_quiet_nothing():
    file = io.StringIO()
    console = Console(file=file)
    with watching([run()], console) as display:
        assert isinstance(display, Lines)
        display.record(run(), record(1, refused=1))  # too early for a line
        display.record(run(), record(10, accuracy=0.25, refused=2))
        display.skip(run(seed=1))
    lines = file.getvalue().splitlines()
    assert lines == [
        "FedAvg, seed 0: round 10 of 10, accuracy 25.00 %, 3 uploads refused",
        "FedAvg, seed 1: finished before",
    ]
    with watching([run()], console, quiet=True) as display:
        display.record(run(), record(10))
        display.skip(run())
    assert file.getvalue().splitlines() == lines
