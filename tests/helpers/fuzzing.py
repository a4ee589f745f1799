"""What the fuzzers share: how many inputs, damage to files, and a bound on memory.

FEDMIM_FUZZ=10000 makes every fuzzer try so many inputs, new ones each time; without it they try a few, always the same.
"""

from __future__ import annotations

import os
import resource
from contextlib import contextmanager
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

LONG = int(os.environ.get("FEDMIM_FUZZ", "0"))
BOUND = 1 << 30  # bytes that one reader may take beyond what the process has


def fuzzed(inputs, slow=1):
    """Settings for a test that tries so many inputs in the short form; in the long one, LONG of them or a part."""
    return settings(
        max_examples=max(LONG // slow, 1) if LONG else inputs,
        derandomize=not LONG,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=bool(LONG),
    )


@contextmanager
def bounded_memory(bound=BOUND):
    """Let an allocation of more than this fail, so that a test finds it and the machine does not."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + bound, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@st.composite
def damaged(draw, content: bytes):
    """The content with one to three damages: cut off, bits flipped, bytes put in or taken out, a block doubled."""
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(len(content) - 1, 0)))
        kind = draw(st.sampled_from(["cut", "flip", "set", "insert", "remove", "double", "zero"]))
        length = draw(st.sampled_from([1, 2, 4, 8, 64, 512]))
        block = content[place : place + length]
        new = {
            "cut": b"",
            "flip": bytes([block[0] ^ 1 << draw(st.integers(0, 7))]) + content[place + 1 :] if block else b"",
            "set": draw(st.binary(min_size=1, max_size=8)) + content[place + length :],
            "insert": draw(st.binary(min_size=1, max_size=8)) + content[place:],
            "remove": content[place + length :],
            "double": block + content[place:],
            "zero": bytes(len(block)) + content[place + length :],
        }[kind]
        content = content[:place] + new
    return content
