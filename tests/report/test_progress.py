"""The progress of runs, by what is printed: the live progress and plain lines."""

import io
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from rich.console import Console

from fedmim.experiments.config import defaults
from fedmim.experiments.run import Run
from fedmim.report.board import SPARKS, Board, sparkline
from fedmim.report.progress import PlainLines, Throttle, _print_latest, status_line, watching
from fedmim.report.run_progress import RunProgress


def record(number, accuracy=0.5, seconds=2.0, refused=0):
    return SimpleNamespace(round=number, test_accuracy=accuracy, seconds=seconds, refused=refused)


def run(method="fedavg", label=None, seed=0, rounds=10, **settings):
    return Run.make(method, defaults("digits") | {"rounds": rounds, "seed": seed} | settings, label)


def shown(progress, width=120, height=40):
    file = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    console = Console(file=file, width=width, height=height, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(Board(progress, console))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_each_method_has_its_rounds_accuracy_sparkline_and_time_left():
    progress = RunProgress([run(), run("fedmim")])
    for number in range(1, 6):
        progress.record(run(), record(number, accuracy=0.1 * number))
    first, second, foot = shown(progress)
    assert first.startswith("FedAvg")
    assert "5/10  50.00 %" in first
    assert "▁" in first
    assert first.endswith("0:10 left")  # five more rounds of two seconds
    assert second.endswith("waiting")
    assert foot.startswith("0 of 2 runs, 5 of 20 rounds")
    assert foot.endswith("0:30 left")  # FedMIM's ten at the pace known so far


def test_a_label_counts_the_rounds_of_all_its_seeds_and_each_methods_own_pace():
    progress = RunProgress([run(seed=0), run(seed=1), run("fedsam", seed=0), run("fedsam", seed=1)])
    progress.skip(run(seed=0))
    progress.record(run("fedsam", seed=0), record(1, seconds=4.0))
    progress.record(run(seed=1), record(1, seconds=2.0))
    assert progress.seconds_left() == pytest.approx(9 * 2 + 19 * 4)
    lines = shown(progress)
    assert "11/20" in lines[0]
    assert "1/20" in lines[1]
    assert lines[-1].startswith("1 of 4 runs, 12 of 40 rounds")


def test_rejected_uploads_are_counted_only_where_there_are_any():
    progress = RunProgress([run(), run("fedmim")])
    progress.record(run(), record(1))
    assert not any("rejected" in line for line in shown(progress))
    progress.record(run(), record(2, refused=2))
    progress.record(run(), record(3, refused=1))
    assert "3 rejected" in shown(progress)[0]
    assert "rejected" not in shown(progress)[1]


@pytest.mark.parametrize("width", [120, 100, 80, 60, 44])
def test_no_line_is_wider_than_the_terminal_and_no_figure_is_cut(width):
    progress = RunProgress(
        [run(label="a label that is longer than most of them are, by far", rounds=1000), run("fedmim")]
    )
    progress.record(run(label=next(iter(progress.lines)), rounds=1000), record(123, accuracy=0.9876))
    lines = shown(progress, width)
    assert max(map(len, lines)) <= width
    assert "123/1000" in lines[0]
    assert "98.76 %" in lines[0]
    assert "left" in lines[0]


def test_a_low_terminal_shows_the_present_method_and_how_many_more_there_are():
    runs = [run(label=f"method {number}") for number in range(30)]
    progress = RunProgress([*runs])
    progress.record(runs[20], record(1))
    lines = shown(progress, height=10)
    assert len(lines) <= 10
    assert any(line.startswith("method 20 ") for line in lines)
    assert "and 23 more" in lines


def test_names_with_markup_are_shown_as_they_are():
    progress = RunProgress([run(label="[red]a[/] <b>")])
    assert shown(progress)[0].startswith("[red]a[/] <b>")


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


def test_the_time_left_is_that_of_the_work_left_and_of_runs_still_to_come():
    longer = [run(seed=seed, rounds=300) for seed in range(4)]
    progress = RunProgress(longer[:3], later=longer[3:])
    progress.skip(longer[0])
    for number in range(1, 101):
        progress.record(longer[1], record(number))
    # Two thirds of the second run, the third, and the one that comes later: (200 + 300 + 300) rounds of 2 s.
    assert progress.seconds_left() == pytest.approx(1600)


def test_a_label_that_comes_later_alone_takes_the_mean_pace_for_its_work(monkeypatch):
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)  # nothing is spent between the rounds
    progress = RunProgress([run()], later=[run("fedmim", rounds=5, local_epochs=10)])
    progress.record(run(), record(1))
    work, later = 5 * 10 * 10 + 1, 10 * 10 * 10 + 1  # relative work of a round: 5 and 10 epochs of ten clients
    assert progress.seconds_left() == pytest.approx(9 * 2 + 5 * 2 * later / work)


def test_the_time_left_includes_what_is_spent_between_the_rounds(monkeypatch):
    progress, moment = RunProgress([run(seed=0), run(seed=1)], jobs=2), 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: moment)
    progress.record(run(seed=0), record(1))  # began at 998
    assert progress.seconds_left() == pytest.approx(19 * 2 / 2)  # nothing is known of the other job yet
    moment += 4.0
    progress.record(run(seed=1), record(1))
    # Two jobs had 2 x 6 s and trained for 4 s, so a round takes three times as long as its training.
    assert progress.seconds_left() == pytest.approx(3 * 18 * 2 / 2)
    moment += 100.0
    assert progress.seconds_left() == pytest.approx(3 * 18 * 2 / 2)  # what the present rounds take is not known yet


def test_the_trials_of_a_search_share_a_line_and_one_that_is_stopped_early_counts_as_done():
    progress = RunProgress([run("fedmim")] * 3)
    progress.record(run("fedmim", "FedMIM, trial 1", lr=0.3), record(4))
    progress.skip(run("fedmim", "FedMIM, trial 1", lr=0.3))
    progress.record(run("fedmim", "FedMIM, trial 2"), record(2))
    line, foot = shown(progress)
    assert line.startswith("FedMIM ")
    assert "12/30" in line
    assert foot.startswith("1 of 3 runs, 12 of 30 rounds")


def lines_of(runs, *told, later=(), quiet=False):
    """What is printed off a terminal when these runs and records are told; a run alone is skipped."""
    file = io.StringIO()
    with watching(runs, Console(file=file), quiet, later) as display:
        assert quiet or isinstance(display, PlainLines)
        for each in told:
            if isinstance(each, tuple):
                display.record(*each)
            else:
                display.skip(each)
    return file.getvalue().splitlines()


def test_off_a_terminal_there_are_plain_lines_and_with_quiet_nothing():
    told = [(run(), record(1, refused=1)), (run(), record(10, accuracy=0.25, refused=2)), run(seed=1)]
    assert lines_of([run()], *told) == [  # the first round is too early for a line
        "FedAvg, seed 0: round 10 of 10, accuracy 25.00 %, 3 uploads rejected",
        "FedAvg, seed 1: skipped",
    ]
    assert lines_of([run()], *told, quiet=True) == []


def test_a_run_that_stops_early_is_told_with_its_last_round():
    (line,) = lines_of([run()], (run(), record(4, accuracy=0.25)), run())
    assert line == "FedAvg, seed 0: round 4 of 10, accuracy 25.00 %; stopped early"


def test_a_notebook_has_one_line_about_all_runs(monkeypatch):
    texts = []
    line = SimpleNamespace(show=texts.append)
    monkeypatch.setattr("fedmim.report.progress.LiveLine", lambda *_, **__: nullcontext(line))
    console = Console(file=io.StringIO(), force_jupyter=True)
    with watching([run(), run("fedmim")], console) as display:
        display.record(run(), record(9))
        display.record(run(), record(10, accuracy=0.25))
        display.skip(run("fedmim"))
    with status_line(console, "loading") as status:
        status("loaded")
    assert texts == [
        "FedAvg, seed 0: round 9 of 10, accuracy 50.00 %; 0 of 2 runs, about 22 s left",  # 1 and 10 rounds of 2 s
        "FedAvg, seed 0: round 10 of 10, accuracy 25.00 %; 1 of 2 runs, about 20 s left",
        "FedMIM, seed 0: skipped",
        "loaded",
    ]


def test_a_line_counts_the_runs_tells_the_time_left_and_names_the_settings_in_which_runs_differ():
    first, second = run(split="iid"), run(split="dirichlet:0.1")
    (line,) = lines_of([first, second], (first, record(10)), later=[second])
    assert line == (
        "FedAvg (split iid), seed 0: round 10 of 10, accuracy 50.00 %; 1 of 2 runs, about 40 s left"
    )  # two more runs of ten rounds of 2 s
    (line,) = lines_of([run("fedmim")], (run("fedmim", "FedMIM, trial 1", lr=0.3), record(10)))
    assert line == "FedMIM, trial 1 (lr 0.3), seed 0: round 10 of 10, accuracy 50.00 %"


def test_a_status_is_told_off_a_terminal_only_every_few_seconds(monkeypatch):
    now, latest, file = [0.0], [""], io.StringIO()
    times = iter([1.0, 2.5, 3.0, 5.0, 1000.0, 1010.0, 1030.0])
    monkeypatch.setattr("fedmim.report.progress.time.monotonic", lambda: now[0])

    def wait(_):
        now[0] = next(times, 0.0)
        latest[0] = f"at {now[0]}"
        return not now[0]

    _print_latest(latest, SimpleNamespace(wait=wait), Console(file=file))
    # 2 seconds at first, later a fiftieth of the time since the start
    assert file.getvalue().splitlines() == ["at 2.5", "at 5.0", "at 1000.0", "at 1030.0"]


def test_a_status_that_does_not_change_is_repeated_only_every_half_minute(monkeypatch):
    now, file, times = [0.0], io.StringIO(), iter([3.0, 6.0, 29.0, 34.0, 37.0, 63.0, 65.0])
    monkeypatch.setattr("fedmim.report.progress.time.monotonic", lambda: now[0])
    printed = []

    def wait(_):
        printed.append((now[0], file.getvalue().count("loading")))
        now[0] = next(times, 0.0)
        return not now[0]

    _print_latest(["loading"], SimpleNamespace(wait=wait), Console(file=file))
    assert [count for _, count in printed] == [0, 1, 1, 1, 2, 2, 2, 3]  # at 3, 34 and 65 seconds


def test_a_single_step_that_takes_seconds_is_told_while_it_runs(monkeypatch):
    monkeypatch.setattr("fedmim.report.progress.POLL", 0.01)
    monkeypatch.setattr(Throttle, "due", lambda self: True)
    file = io.StringIO()
    with status_line(Console(file=file), "loading") as tell:
        wait_for(lambda: "loading" in file.getvalue())
        tell("timing: 1 of 2")
        wait_for(lambda: "timing: 1 of 2" in file.getvalue())
    ended = file.getvalue()
    time.sleep(0.05)
    assert file.getvalue() == ended
    with status_line(Console(file=(silent := io.StringIO()))):
        time.sleep(0.05)
    assert silent.getvalue() == ""


def wait_for(condition):
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("it was not told within ten seconds")


def test_runs_at_once_have_their_own_rounds_and_the_time_left_is_shared_among_the_jobs():
    progress = RunProgress([run(seed=0), run(seed=1), run("fedmim")], jobs=2)
    for number in (1, 2):
        progress.record(run(seed=0), record(number, accuracy=0.1 * number))
        progress.record(run(seed=1), record(number, accuracy=0.9))
    first, second, foot = shown(progress)
    assert "4/20  20.00 %" in first  # the curve is that of the first run in progress
    assert first.endswith("0:16 left")  # sixteen rounds of two seconds, two at a time
    assert second.endswith("waiting")
    assert foot.startswith("0 of 3 runs, 4 of 30 rounds")
    assert progress.seconds_left() == pytest.approx((16 + 10) * 2 / 2)


def test_off_a_terminal_every_run_in_progress_has_a_line(monkeypatch):
    now, file = [0.0], io.StringIO()
    monkeypatch.setattr("fedmim.report.progress.time.monotonic", lambda: now[0])
    with watching([run(), run("fedmim")], Console(file=file, width=200), jobs=2) as display:
        display.record(run(), record(1))
        now[0] = 3.0
        display.record(run("fedmim"), record(2))
    assert file.getvalue().splitlines() == [
        "FedAvg, seed 0: round 1 of 10, accuracy 50.00 %",
        # 17 rounds of two seconds, two at a time, are 17 s; so far two jobs had 5 s each and trained for 4 s: 17 * 2.5.
        "FedMIM, seed 0: round 2 of 10, accuracy 50.00 %; 0 of 2 runs, about 42 s left",
    ]


def test_a_failed_run_is_not_shown_as_finished():
    progress = RunProgress([run(), run("fedmim")], jobs=2)
    progress.record(run(), record(3))
    progress.record(run("fedmim"), record(10))
    progress.fail(run())
    first, second, foot = shown(progress)
    assert "3/10" in first
    assert first.endswith("1 failed")
    assert "10/10" in second
    assert foot.startswith("1 of 2 runs, 1 failed, 13 of 20 rounds")
    assert "left" not in foot


def test_a_failed_run_has_a_plain_line():
    file = io.StringIO()
    with watching([run(), run("fedmim")], Console(file=file, width=200)) as display:
        display.fail(run())
    assert file.getvalue() == "FedAvg, seed 0: failed\n"
