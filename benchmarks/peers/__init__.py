"""Other simulators of federated learning, from PyPI, on the workloads of this benchmark.

Each has its own environment, created once, and a program of the same name, `python -m benchmarks.peers.NAME W1` with
that environment's Python: for each line on standard input it runs one round and prints one line.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.workloads import Workload

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path.home() / ".cache" / "fedmim-benchmarks"
TORCH = ("torch==2.13.0", "numpy")


@dataclass(frozen=True)
class Package:
    """What to install for a peer: arguments of pip, after torch."""

    title: str
    requirements: tuple[tuple[str, ...], ...]


PEERS = {
    "flower": Package("Flower simulation 1.41.0", (("flwr[simulation]==1.41.0",),)),
    # It declares Python 3.12 but also works with 3.11.
    "blazefl": Package("blazefl 2.0.3", (("--no-deps", "--ignore-requires-python", "blazefl==2.0.3"), ("tqdm",))),
    "pfl": Package("pfl 0.6.0", (("pfl[pytorch]==0.6.0",),)),
    "fedlab": Package("fedlab 1.3.0", (("fedlab==1.3.0",),)),
    "fluke": Package("fluke 0.8.1", (("fluke-fl==0.8.1",),)),
}


def python(name: str) -> Path:
    """The Python of a peer's environment; creates it if it is missing or its requirements have changed."""
    folder, commands = CACHE / name, (TORCH, *((*each, TORCH[0]) for each in PEERS[name].requirements))
    interpreter, stamp = folder / "bin" / "python", folder / "requirements.txt"
    wanted = "\n".join(" ".join(each) for each in commands) + "\n"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return interpreter
    print(
        f"creating an environment for {PEERS[name].title} in {folder} (once; takes some minutes)",
        file=sys.stderr,
        flush=True,
    )
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    for each in commands:
        subprocess.run([interpreter, "-m", "pip", "install", "--quiet", *each], check=True)
    stamp.write_text(wanted, encoding="utf-8")
    return interpreter


class Peer:
    """A peer's program, ready to run rounds of a workload."""

    def __init__(self, workload: Workload, name: str) -> None:
        # As a module of this package, a program may have the name of the library that it imports.
        command = [python(name), "-m", f"benchmarks.peers.{name}", workload.name]
        self.log = CACHE / f"{name}-{workload.name}.log"
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def __call__(self) -> None:
        """Run one round."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write("go\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, which the next line detects
        if not self._process.stdout.readline():
            last = "".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)[-20:])
            raise RuntimeError(f"the peer's program has ended; see {self.log}, which ends with\n{last}")

    def close(self) -> None:
        """End the program."""
        try:
            self._process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
