"""Real Flower processes on loopback, for one test: free ports, files below one folder, all ended by their ids."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

BIN = Path(sys.executable).parent
HELPERS = Path(__file__).parent
SOURCE = HELPERS.parents[1] / "src"
APPS = HELPERS.parent / "flower" / "apps"

PYPROJECT = """\
[project]
name = "{name}"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedmim"

[tool.flwr.app.components]
serverapp = "server_app:app"
clientapp = "client_app:app"

[tool.flwr.app.config]
{config}
"""


class Flower:
    """A SuperLink and what is connected to it; on leaving, every process that it started is ended."""

    def __init__(self, folder: Path, *, tls: bool = False) -> None:
        self.folder, self.home, self.tls = folder, folder / "home", tls
        self.home.mkdir()
        self._started: list[subprocess.Popen[bytes]] = []
        self.address = f"127.0.0.1:{free_port()}"
        self.env = {
            **os.environ,
            "HOME": str(self.home),
            "FLWR_HOME": str(self.home / ".flwr"),  # also the mark by which our processes are known
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{SOURCE}{os.pathsep}{HELPERS}",
            "OMP_NUM_THREADS": "1",
        }
        security = f'root-certificates = "{folder / "ca.crt"}"' if tls else "insecure = true"
        config = f'[superlink]\ndefault = "test"\n\n[superlink.test]\naddress = "{self.address}"\n{security}\n'
        (self.home / ".flwr").mkdir()
        (self.home / ".flwr" / "config.toml").write_text(config)

    def __enter__(self) -> Flower:
        return self

    def __exit__(self, *_: object) -> None:
        self.end([*self.processes(), *(process.pid for process in self._started if process.poll() is None)])
        for process in self._started:
            process.wait(timeout=30)

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start a program, with its output in NAME.log."""
        return self._start(name, str(BIN / command[0]), *command[1:])

    def shell(self, name: str, line: str) -> subprocess.Popen[bytes]:
        """Start a command line of bash, with its output in NAME.log; the process is the program's."""
        return self._start(name, "bash", "-c", f"exec {line}")

    def _start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                env=self.env,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._started.append(process)
        return process

    def superlink(self, *options: str) -> None:
        """Start the SuperLink, and wait until it listens."""
        host, port = self.address.split(":")
        security = options if self.tls else ("--insecure", *options)
        self.listening(self.start("superlink", "flower-superlink", "--host", host, "--port", port, *security))

    def listening(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the SuperLink listens."""
        port = int(self.address.split(":")[1])
        self.wait(lambda: listens(port) or process.poll() is not None, 120, "the SuperLink did not start")
        assert process.poll() is None, self.log("superlink")

    def supernode(self, client: int, clients: int, *options: str) -> subprocess.Popen[bytes]:
        """Start a client's SuperNode."""
        disk = self.folder / f"disk-{client}"
        config = f"partition-id={client} num-partitions={clients} state-dir='{disk}'"
        address = ("--host", "127.0.0.1", "--port", str(free_port()), "--superlink", self.address)
        security = options or ("--insecure",)
        return self.start(f"node-{client}", "flower-supernode", *address, "--node-config", config, *security)

    def app(self, name: str, **config: object) -> Path:
        """An app of the tests with its configuration."""
        folder = self.folder / name
        folder.mkdir()
        for file in (APPS / name).glob("*.py"):
            (folder / file.name).write_text(file.read_text())
        values = "\n".join(f"{key} = '{value}'" for key, value in config.items())
        (folder / "pyproject.toml").write_text(PYPROJECT.format(name=name, config=values))
        return folder

    def run(self, app: Path, *options: str) -> subprocess.Popen[bytes]:
        """`flwr run`; its output is in run-NAME.log."""
        return self.start(f"run-{app.name}", "flwr", "run", str(app), "test", "--stream", *options)

    def log(self, name: str) -> str:
        """What a program has printed so far."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def wait(self, done: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait for something to happen, but not for ever."""
        end = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < end, f"{what} within {seconds} s\n" + "\n".join(
                f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in self.folder.glob("*.log")
            )
            time.sleep(0.2)

    def processes(self, containing: str = "") -> list[int]:
        """The ids of all processes of this object, which their environment tells, with a text in their command."""
        mark = f"FLWR_HOME={self.env['FLWR_HOME']}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                ours = mark in (folder / "environ").read_bytes().split(b"\0")
                if ours and containing.encode() in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
            except OSError:  # it has ended, or is another user's
                continue
        return found

    def end(self, processes: list[int]) -> None:
        """End these processes and what they started, without asking."""
        for process in processes:
            for id in [process, *descendants(process)]:
                try:
                    os.kill(id, signal.SIGKILL)
                except ProcessLookupError:
                    continue


def descendants(process: int) -> list[int]:
    """The ids of a process's children, their children and so on."""
    children = Path(f"/proc/{process}/task/{process}/children")
    try:
        ids = [int(id) for id in children.read_text().split()]
    except OSError:
        return []
    return ids + [below for id in ids for below in descendants(id)]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Whether somebody listens on a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
