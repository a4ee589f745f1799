"""The pool of runs whose clients are trained on a Ray cluster. No cluster is started here."""

import pytest

from fedmim.errors import UserError
from fedmim.experiments import job_start
from fedmim.experiments.run import Run
from fedmim.experiments.works import ThisProcess


@pytest.fixture
def runs(monkeypatch):
    monkeypatch.setattr(job_start, "trainings", lambda runs: [])  # they would connect to a cluster
    monkeypatch.setattr(job_start, "JobPool", lambda count: pytest.fail("starts processes"))
    return [Run.make("fedavg", {"engine": "ray", "rounds": 10**6, "seed": seed}) for seed in range(2)]


def test_runs_of_engine_ray_are_trained_one_after_the_other_because_each_uses_the_whole_cluster(runs):
    pool, _ = job_start.ready_pool(runs, None, len(runs), pytest.fail)
    assert isinstance(pool, ThisProcess)


def test_several_jobs_with_engine_ray_are_rejected(runs):
    with pytest.raises(UserError, match="jobs: must be 1 with engine ray"):
        job_start.ready_pool(runs, 2, len(runs), pytest.fail)
