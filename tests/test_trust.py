"""What may run code, start programs, read pickles or listen: a short list, each entry with its reason."""

import ast
from pathlib import Path

from fedmim.commands.report import WatchOptions
from fedmim.report.watch import PageServer

SOURCE = Path(__file__).parents[1] / "src" / "fedmim"
NAMES = {
    *("eval", "exec", "compile", "__import__"),
    *(f"{module}.{name}" for module in ("pickle", "cloudpickle", "dill") for name in ("load", "loads", "Unpickler")),
    *("torch.load", "torch.jit.load", "torch.hub.load", "numpy.load", "np.load", "pandas.read_pickle"),
    *("importlib.import_module", "importlib.util.spec_from_file_location", "pkgutil.resolve_name"),
    *("os.system", "os.popen", "subprocess.run", "subprocess.call", "subprocess.check_output", "subprocess.Popen"),
    *("socket.socket", "socket.create_server", "http.server.HTTPServer", "http.server.ThreadingHTTPServer"),
}
MODULES = {"yaml", "marshal", "shelve", "dill", "joblib", "runpy", "ctypes", "cffi", "code", "multiprocessing"}
ALLOWED = {
    ("__init__.py", "importlib.import_module"): "the library's own modules, when they are first asked for",
    ("flower/__init__.py", "importlib.import_module"): "the library's own modules, when they are first asked for",
    ("data/lazy_arrays.py", "importlib.import_module"): "numpy and torch, when they are first asked for",
    ("cli.py", "pkgutil.resolve_name"): "the command, from a table in the same file",
    ("experiments/own_code.py", "importlib.util.spec_from_file_location"): "the user's own method, model or data",
    ("data/cifar.py", "pickle.Unpickler"): "CIFAR's files, after their checksum matched; arrays and nothing else",
    (
        "simulation/messages.py",
        "pickle.loads",
    ): "what parent and worker send each other, by a socket of theirs",
    ("simulation/messages.py", "socket.socket"): "the two ends of that socket, which has no address",
    ("simulation/trainer.py", "socket.socket"): "the worker's end",
    ("simulation/trainer.py", "pickle.loads"): "an error of the worker's own, to see whether it can be sent",
    ("simulation/worker.py", "socket.socket"): "the worker's end, from the descriptor that it is started with",
    (
        "simulation/shared.py",
        "pickle.Unpickler",
    ): "what the parent puts into memory that it shares with its workers, or into the object store of its Ray cluster",
    ("simulation/child.py", "subprocess.Popen"): "the workers and the jobs",
    ("simulation/pool.py", "multiprocessing"): "to wait for several workers at once",
    ("experiments/job.py", "socket.socket"): "the job's end, from the descriptor that it is started with",
    ("experiments/job.py", "cloudpickle.loads"): "the work that the command sends to its job, by a socket of theirs",
    ("experiments/job_messages.py", "cloudpickle.loads"): "the run that a job or a task of Ray reports on",
    ("experiments/ray_work.py", "cloudpickle.loads"): "the work that the command sends to a task of Ray, by Ray",
    ("experiments/jobs.py", "multiprocessing"): "to wait for several jobs at once",
    ("report/watch.py", "http.server.ThreadingHTTPServer"): "the live page, on 127.0.0.1 unless told otherwise",
}


def dotted(node):
    """The name that an expression spells, such as pickle.loads."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def found_in(source):
    """The names of NAMES and MODULES that a program uses, whatever it calls them."""
    tree = ast.parse(source)
    known_as, used = {}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known_as |= {alias.asname: alias.name for alias in node.names if alias.asname}
            used |= {alias.name.split(".")[0] for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom) and node.module:
            used |= {node.module.split(".")[0]} & MODULES
            used |= {f"{node.module}.{alias.name}" for alias in node.names} & NAMES
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            first, point, rest = dotted(node).partition(".")
            used |= {known_as.get(first, first) + point + rest} & NAMES
    return used


def test_code_is_run_pickles_are_read_and_ports_are_opened_in_these_places_alone():
    found = {
        (path.relative_to(SOURCE).as_posix(), name)
        for path in SOURCE.rglob("*.py")
        for name in found_in(path.read_text(encoding="utf-8"))
    }
    assert found == set(ALLOWED)


def test_the_search_sees_through_other_names():
    assert found_in("import pickle as p\np.loads(b'')") == {"pickle.loads"}
    assert found_in("from torch import load as read\nread('x')") == {"torch.load"}
    assert found_in("class Own(pickle.Unpickler): pass") == {"pickle.Unpickler"}
    assert found_in("model.eval()\nre.compile('x')\nself.load()") == set()
    assert found_in("import yaml.constructor\nf = eval") == {"yaml", "eval"}


def test_the_live_page_is_for_this_machine_unless_told_otherwise():
    assert WatchOptions().host == "127.0.0.1"
    with PageServer(None, WatchOptions().host, 0) as server:
        assert server.socket.getsockname()[0] == "127.0.0.1"
