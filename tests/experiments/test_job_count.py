"""The number of jobs: by cores, memory, runs, and whether starting processes is worth it."""

import pytest

from fedmim.cli import main
from fedmim.errors import UserError
from fedmim.experiments import job_count, job_start
from fedmim.experiments.config import defaults
from fedmim.experiments.job_count import JOB_BYTES, Need, check_jobs, choose_jobs, likely_jobs
from fedmim.experiments.run import Run

GB = 10**9


def need(engine="serial", seconds=100.0, memory=GB, device="cpu"):
    return Need(engine, seconds, memory, device)


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    monkeypatch.setattr(job_count, "cores", lambda: 4)


def chosen(asked, runs, *needs, available=100 * GB):
    lines = []
    return choose_jobs(asked, runs, needs, available, lines.append), lines


def test_there_is_one_job_for_each_core_and_no_more_than_runs():
    assert chosen(None, 10, need()) == (4, [])
    assert chosen(None, 3, need()) == (3, [])
    assert chosen(None, 1, need()) == (1, [])
    assert chosen(8, 10, need()) == (8, [])
    assert chosen(8, 2, need()) == (2, [])


def test_short_runs_and_runs_on_a_gpu_are_trained_one_after_the_other_unless_asked():
    assert chosen(None, 10, need(seconds=0.1)) == (1, [])
    assert chosen(3, 10, need(seconds=0.1)) == (3, [])
    assert chosen(None, 10, need(device="cuda")) == (1, [])
    assert chosen(2, 10, need(device="cuda")) == (2, [])


def test_worker_processes_are_kept_where_jobs_would_leave_cores_idle_at_the_end():
    assert chosen(None, 5, need("processes")) == (1, [])  # four at once, then one alone on one core
    assert chosen(None, 4, need("processes")) == (4, [])
    assert chosen(None, 100, need("processes")) == (4, [])
    assert chosen(2, 5, need("processes")) == (2, [])


def test_memory_lowers_the_number_with_a_line_that_says_why():
    for asked in (None, 4):
        assert chosen(asked, 10, need(), need(memory=2 * GB), available=5 * GB) == (
            2,
            ["jobs: 2 instead of 4, because each needs about 2.0 GB of memory and 5.0 GB are available"],
        )
    assert chosen(2, 10, need(), available=GB // 10)[0] == 1
    assert chosen(2, 10, need(), available=None) == (2, [])


def test_the_command_counts_the_memory_of_its_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(job_start, "available_memory", lambda: JOB_BYTES + (50 << 20))
    words = ["compare", "--data", "digits", "--methods", "fedavg,fedmim", "--rounds", "1", "--jobs", "2"]
    assert main([*words, "--out", str(tmp_path / "a")]) == 0
    assert "jobs: 1 instead of 2, because each needs about 0.3 GB" in capsys.readouterr().err


def test_numbers_that_make_no_sense_are_rejected():
    check_jobs(None)
    check_jobs(3)
    for wrong in (0, -2, 10**6):
        with pytest.raises(UserError, match="jobs: must be a whole number"):
            check_jobs(wrong)


def test_processes_start_early_only_if_several_jobs_are_likely():
    def run_of(**settings):
        return Run.make("fedavg", defaults("digits") | {"clients": 10, "participation": 1.0, **settings})

    long, short = run_of(rounds=100, local_steps=10), run_of(rounds=1, local_steps=1)
    assert likely_jobs(None, 10, [long]) == 4
    assert likely_jobs(None, 3, [long]) == 3
    assert likely_jobs(None, 10, [short]) == 0
    assert likely_jobs(None, 10, [run_of(rounds=100, local_steps=10, device="cuda")]) == 0
    assert likely_jobs(3, 10, [short]) == 3
    assert likely_jobs(500, 600, [short]) == 4  # the memory for more is not checked yet
    assert likely_jobs(2, 1, [long]) == 0
