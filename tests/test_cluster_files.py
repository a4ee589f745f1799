"""The files of examples/cluster: the settings of `ray up` fit Ray's schema, and the Slurm script starts and stops all.

Slurm's commands are replaced by small scripts that note how they are called. No Ray cluster is started here.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples" / "cluster"
SCRIPT = FOLDER / "fedmim.sbatch"
COMMANDS = {
    # Notes its arguments, then starts the command as often as Slurm would, and passes SIGTERM on.
    "srun": """
echo "srun $*" >>calls
count=1
while [[ $1 == --* ]]; do case $1 in --ntasks=*) count=${1#*=} ;; esac; shift; done
trap 'kill -TERM "${pids[@]}"' TERM
for ((i = 0; i < count; i++)); do "$@" & pids+=($!); done
wait; wait
""",
    "scontrol": "printf 'one\\ntwo\\nthree\\nfour\\n'",
    "hostname": "echo 127.0.0.1",
    # The head node listens until it is stopped; other nodes only wait.
    "ray": """
trap 'kill $!; echo "stopped ${3%%=*}" >>calls; exit' TERM
echo "ray $*" >>calls
all=$*
port=${all#*--port=}
case "$all" in
    *--head*) PYTHON -m http.server --bind 127.0.0.1 "${port%% *}" & ;;
    *) sleep 60 & ;;
esac
wait
""",
    # The script's wait for all nodes.
    "python": """
cat >/dev/null
until [ "$(grep -c '^ray' calls)" = "$3" ]; do sleep 0.05; done
[ ! -e some-node-is-missing ]
""",
    "fedmim": """
echo "fedmim $*" >>calls
echo "token ${#RAY_AUTH_TOKEN}, $RAY_AUTH_MODE" >>calls
trap 'sleep 0.3; echo "checkpoint" >>calls; exit 143' TERM
case $1 in fail) exit 2 ;; long) sleep 60 & wait $! ;; esac
""",
}
pytestmark = [
    pytest.mark.skipif(not FOLDER.is_dir(), reason="not in the source distribution"),
    pytest.mark.skipif(sys.platform != "linux" or not shutil.which("bash"), reason="Slurm runs on Linux"),
]


def test_the_settings_of_the_launcher_fit_rays_schema():
    jsonschema, yaml = pytest.importorskip("jsonschema"), pytest.importorskip("yaml")
    pytest.importorskip("ray")
    schema = json.loads(files("ray.autoscaler").joinpath("ray-schema.json").read_text())
    settings = yaml.safe_load((FOLDER / "ray.yaml").read_text())
    jsonschema.validate(settings, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(settings | {"workers": 3}, schema)


@pytest.fixture
def start(tmp_path):
    """Starts the script as Slurm would, in a folder with the commands that it calls."""
    jobs = []

    def start_job(*words, nodes=4):
        slurm = {"SLURM_JOB_NUM_NODES": str(nodes), "SLURM_CPUS_PER_TASK": "3", "SLURM_MEM_PER_NODE": "1000"}
        slurm |= {"SLURM_JOB_NODELIST": "nodes", "SLURM_JOB_ID": str(os.getpid())}
        variables = os.environ | slurm | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
        with (tmp_path / "output").open("w") as output:
            command = ["bash", SCRIPT, *words]
            jobs.append(subprocess.Popen(command, cwd=tmp_path, env=variables, stdout=output, start_new_session=True))
        return jobs[-1]

    (tmp_path / "bin").mkdir()
    for name, text in COMMANDS.items():
        path = tmp_path / "bin" / name
        path.write_text("#!/bin/bash\n" + text.replace("PYTHON", sys.executable))
        path.chmod(0o755)
    yield start_job
    for job in jobs:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def calls(folder):
    path = folder / "calls"
    return path.read_text().splitlines() if path.exists() else []


def wait_for(folder, word):
    deadline = time.monotonic() + 20
    while not any(line.startswith(word) for line in calls(folder)):
        assert time.monotonic() < deadline, calls(folder)
        time.sleep(0.05)


def test_the_slurm_script_is_valid_bash():
    subprocess.run(["bash", "-n", SCRIPT], check=True)


def test_the_job_starts_a_node_per_machine_within_its_cores_and_memory_and_stops_them(start, tmp_path):
    job = start("compare", "--out", "runs/a b")
    assert job.wait(timeout=20) == 0
    noted = calls(tmp_path)
    port = 20000 + os.getpid() % 10000
    head, others = [line for line in noted if line.startswith("srun")]
    assert "--nodes=1 --ntasks=1 --cpus-per-task=3 --nodelist=one ray start --head" in head
    assert "--nodes=3 --ntasks=3 --cpus-per-task=3 --exclude=one ray start" in others
    started = [line for line in noted if line.startswith("ray start")]
    assert len(started) == 4
    assert all(f"--num-cpus=3 --object-store-memory={300 << 20} --block" in line for line in started)
    assert sum(f"--address=127.0.0.1:{port} " in line for line in started) == 3
    assert f"fedmim compare --out runs/a b --ray 127.0.0.1:{port}" in noted
    assert "token 64, token" in noted
    assert sum(line.startswith("stopped") for line in noted) == 4


def test_the_job_on_one_node_has_no_other_nodes(start, tmp_path):
    assert start("compare", nodes=1).wait(timeout=20) == 0
    assert sum(line.startswith("ray start") for line in calls(tmp_path)) == 1


def test_a_command_that_fails_gives_the_job_its_exit_code(start, tmp_path):
    assert start("fail").wait(timeout=20) == 2
    assert sum(line.startswith("stopped") for line in calls(tmp_path)) == 4


def test_before_the_time_limit_the_command_writes_its_checkpoints_before_the_nodes_stop(start, tmp_path):
    job = start("long")
    wait_for(tmp_path, "token")
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=20) == 143
    noted = calls(tmp_path)
    assert noted.index("checkpoint") < min(at for at, line in enumerate(noted) if line.startswith("stopped"))
    assert sum(line.startswith("stopped") for line in noted) == 4


def test_a_node_that_does_not_start_ends_the_job(start, tmp_path):
    (tmp_path / "some-node-is-missing").touch()
    job = start("compare")
    assert job.wait(timeout=20) == 1
    assert "not all nodes have started" in (tmp_path / "output").read_text()
    assert not any(line.startswith("fedmim") for line in calls(tmp_path))
