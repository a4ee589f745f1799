"""The number of cores that this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # cgroup version 2, as in containers


def cores() -> int:
    """The cores of the machine, within the limits of the affinity, the container and Slurm."""
    counts = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    if (slurm := os.environ.get("SLURM_CPUS_PER_TASK", "")).isdecimal():
        counts.append(int(slurm))
    try:
        quota, period = _QUOTA.read_text(encoding="ascii").split()
        counts.append(math.ceil(int(quota) / int(period)))
    except (OSError, ValueError, ZeroDivisionError):  # ValueError: the quota is "max"
        pass
    return max(1, min(counts))
