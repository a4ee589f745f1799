"""The connection to a Ray cluster: a running one, or one started on this machine with the cores that were asked for."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from fedmim.cores import cores
from fedmim.errors import UserError
from fedmim.memory import available_memory
from fedmim.simulation.child import ALLOCATOR

LISTENS = 5.0  # seconds for the head node to accept a connection
FREE = 60.0  # seconds to wait for a free CPU or GPU
STORE_SHARE = 0.3  # of the available memory, for the object store of a cluster on this machine
CURRENT_CLUSTER = Path("/tmp/ray/ray_current_cluster")  # its address, written by `ray start`


def connect(address: str | None, workers: int | None) -> ModuleType:
    """Connect to a cluster, unless this process is connected already. Returns the module ray.

    The address is HOST:PORT of the head node, "auto" (the one of $RAY_ADDRESS, or the cluster that runs on this
    machine), or "local" (starts a cluster on this machine, with this many CPUs). None: $RAY_ADDRESS, else "local".
    """
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    ray = import_ray(local=address == "local")
    if ray.is_initialized():
        return ray
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        memory = available_memory()
        store = None if memory is None else max(100 << 20, int(STORE_SHARE * memory))
        options = {"num_cpus": workers or cores(), "object_store_memory": store, "include_dashboard": False}
        _start(ray, "local", options | quiet)
        return ray
    found = find_head(address)
    check_listening(found)
    _start(ray, found, quiet)
    return ray


def import_ray(*, local: bool) -> ModuleType:
    """Import Ray, an optional dependency. `local`: a cluster that only this machine can reach."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # no warning about a future version
    if local and "ray" not in sys.modules:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # everything listens on 127.0.0.1
    try:
        import ray
    except ImportError as error:
        raise UserError("ray: requires Ray: pip install 'fedmim[ray]'") from error
    return ray


def _start(ray: ModuleType, address: str, options: dict[str, Any]) -> None:
    """Call ray.init. It replaces the handler of SIGTERM, which is restored."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, **options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(
            f"ray: cannot connect to {address} ({reason}); this machine must be part of the cluster "
            "(ray start --address=HOST:PORT) and have the same versions of Python and Ray, and its token if it has one"
        ) from error
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)


def worker_options(gpus: float) -> dict[str, Any]:
    """The options of a task or actor that trains: one CPU, one thread, and the paths of the user's own modules."""
    own = [place or str(Path.cwd()) for place in sys.path]
    own = [place for place in own if not place.startswith((sys.prefix, sys.base_prefix))]
    variables = {**ALLOCATOR, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(own)}
    return {
        "num_cpus": 1,
        "num_gpus": gpus,
        "scheduling_strategy": "SPREAD",
        "runtime_env": {"env_vars": variables},
    }


def find_head(address: str) -> str:
    """HOST:PORT of the head node."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", "auto")
    if address == "auto":
        try:
            address = CURRENT_CLUSTER.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise UserError(
                "ray: no cluster runs on this machine; start one with `ray start --head`, give the HOST:PORT of its "
                "head node, or use local"
            ) from error
    if "://" in address:
        raise UserError(f"ray: must be HOST:PORT of the head node, without {address.partition('://')[0]}://")
    return address


def check_listening(address: str) -> None:
    """Reject an address where nothing listens; Ray itself would take minutes."""
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdecimal() and 0 < int(port) < 65536):
        raise UserError(f"ray: must be HOST:PORT of the head node, auto or local, got {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=LISTENS).close()
    except OSError as error:
        raise UserError(
            f"ray: nothing listens on {address} ({error.strerror or error}); start the cluster with "
            "`ray start --head --port=PORT`, or give the address of its head node"
        ) from error


def slots(ray: ModuleType, gpus: float, *, free: bool = False) -> int:
    """The number of workers with one CPU and this many GPUs that the cluster, or its free part, has room for."""
    found = ray.available_resources() if free else ray.cluster_resources()
    counts = [found.get("CPU", 0.0)] + ([found.get("GPU", 0.0) / gpus] if gpus else [])
    return int(min(counts) + 1e-9)


def free_slots(ray: ModuleType, gpus: float, asked: int | None) -> int:
    """The number of workers to start: those asked for, else all that are free. Waits a minute for the first one."""
    what = f"one CPU and {gpus:g} GPU each" if gpus else "one CPU each"
    total = slots(ray, gpus)
    if total < (asked or 1):
        raise UserError(
            f"ray: the cluster has room for {total} workers with {what}, {asked or 1} are needed; lower --workers or "
            "add nodes"
        )
    deadline = time.monotonic() + FREE
    while not (free := slots(ray, gpus, free=True)):
        if time.monotonic() > deadline:
            raise UserError(f"ray: all {total} CPUs or GPUs of the cluster are in use by others; try again later")
        time.sleep(0.2)
    return min(free, asked or free)
