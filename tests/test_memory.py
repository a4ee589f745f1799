"""How much memory there is, and what does not fit into it."""

import pytest

from fedmim import memory
from fedmim.errors import UserError
from fedmim.memory import available_memory, check_memory


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A machine with 8 GiB available, in a container without a limit."""
    (tmp_path / "meminfo").write_text("MemTotal: 16777216 kB\nMemFree: 10 kB\nMemAvailable: 8388608 kB\n")
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1073741824\n")
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    return tmp_path


def test_the_machine_says_how_much_is_available(system):
    assert available_memory() == 8 << 30


def test_the_limit_of_a_container_counts_where_it_is_smaller(system):
    (system / "memory.max").write_text(f"{3 << 30}\n")
    assert available_memory() == 2 << 30


def test_where_neither_says_the_memory_that_is_built_in_counts(system, monkeypatch):
    (system / "meminfo").unlink()
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert available_memory() == 4_096_000
    monkeypatch.setattr("os.sysconf_names", {})
    assert available_memory() is None
    check_memory(10**20, "anything", "no remedy")  # nothing is known, so nothing is refused


def test_what_does_not_fit_is_named_with_its_size_and_the_remedy(system):
    check_memory(8 << 30, "model", "use a smaller one")
    with pytest.raises(
        UserError, match=r"^model needs about 8\.6 GB of memory, but 8\.6 GB are .*: use a smaller one$"
    ):
        check_memory((8 << 30) + 1, "model", "use a smaller one")
    with pytest.raises(UserError, match="1,000,000,000 GB"):
        check_memory(10**18, "model", "use a smaller one")
