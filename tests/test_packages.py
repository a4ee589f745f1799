"""The packages of the design: imports point one way, torch comes late, flwr stays in its package."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fedmim

SOURCE = Path(fedmim.__file__).parent
# Small, for every package but the mathematics.
LEAVES = {"cores", "display", "divergence", "errors", "files", "memory", "signals", "structure"}

# What each package may import of ours, besides itself.
MAY_IMPORT = {
    "cores": set(),
    "display": set(),
    "divergence": set(),
    "errors": set(),
    "files": {"errors"},
    "memory": {"errors"},
    "signals": set(),
    "structure": set(),
    "algorithms": set(),
    "data": LEAVES,
    "models": LEAVES,
    "simulation": {"algorithms", "data", "models"} | LEAVES,
    "optim": {"algorithms", "simulation"} | LEAVES,
    "experiments": {"algorithms", "data", "models", "simulation"} | LEAVES,
    "flower": {"algorithms", "data", "models", "optim", "simulation", "experiments"} | LEAVES,
    "results": {"algorithms", "experiments"} | LEAVES,
    "report": {"algorithms", "data", "experiments", "results"} | LEAVES,
    "reproduction": {"algorithms", "data", "simulation", "experiments", "results", "report", "flags"} | LEAVES,
    "theory": {"algorithms", "data", "models", "simulation", "results", "report"} | LEAVES,
}
# The command line, its functions for Python, and the package itself may import all.
PUBLIC = {"cli", "commands", "comparing", "flags", "tuning", "__init__", "__main__"}


def package_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


class WithoutTypes(ast.NodeTransformer):
    """Drops what only a type checker imports."""

    def visit_If(self, node):
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)


def imported(path):
    """The full names of the modules (or the names in them) that a file imports when run, wherever in it."""
    tree = WithoutTypes().visit(ast.parse(path.read_text(encoding="utf-8")))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_upwards_only(path):
    package = package_of(path)
    if package in PUBLIC:
        return
    assert package in MAY_IMPORT, f"a package that the design does not know: {package}"
    ours = {name.split(".")[1] for name in imported(path) if name.startswith("fedmim.")}
    assert ours <= MAY_IMPORT[package] | {package, "__version__"}


def test_results_and_report_never_train():
    for path in FILES:
        if package_of(path) in ("results", "report"):
            assert not [name for name in imported(path) if "simulation" in name]


def test_nothing_but_the_flower_package_imports_flwr():
    for path in FILES:
        if package_of(path) != "flower":
            assert not [name for name in imported(path) if name.split(".")[0] == "flwr"], path


def test_nothing_is_pickled_to_disk():
    between_processes = {"shared.py", "messages.py", "trainer.py"}
    for path in FILES:
        # The data package reads CIFAR's pickles, by an unpickler that admits nothing but arrays.
        if package_of(path) != "data" and path.name not in between_processes:
            names = set(imported(path))
            assert not names & {"pickle", "shelve", "joblib"}, path
            assert "torch.save" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "module", ["fedmim", "fedmim.algorithms", "fedmim.simulation.settings", "fedmim.errors", "fedmim.files"]
)
def test_what_the_command_line_needs_first_does_not_import_torch(module):
    program = f"import sys, {module}; assert 'torch' not in sys.modules; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_every_public_name_is_there():
    for name in fedmim.__all__:
        assert getattr(fedmim, name) is not None
    promised = "FedMIM FedAvg FedAdam Scaffold FedCM FedDyn FedSAM FedProx FedAvgM Task Settings simulate rounds"
    assert set(promised.split()) <= set(fedmim.__all__) <= set(dir(fedmim))
    with pytest.raises(AttributeError, match="FedMin"):
        _ = fedmim.FedMin


@pytest.mark.parametrize("package", [path.parent.name for path in SOURCE.glob("*/__init__.py")])
def test_every_package_is_there_after_the_import_of_the_whole(package):
    program = (
        f"import fedmim; assert fedmim.{package}.__name__ == 'fedmim.{package}'; assert {package!r} in dir(fedmim)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def public_names(path):
    """The classes, functions and constants that a module defines."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        else:
            names = [node.target.id] if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else []
        yield from (name for name in names if not name.startswith("_"))


def test_a_public_name_has_one_home():
    homes = {}
    for path in FILES:
        for name in public_names(path):
            homes.setdefault(name, []).append(str(path.relative_to(SOURCE)))
    assert {name: places for name, places in homes.items() if len(set(places)) > 1} == {}
