"""Works on a Ray cluster: one task per run, and a run whose node is lost goes on elsewhere from its last checkpoint.

If all nodes see the folder of the results, the tasks write to it. Otherwise they work on copies, and the files come
back after every checkpoint.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from fedmim.errors import UserError, warn_user
from fedmim.experiments.folder_copy import ChangedFiles, read_files
from fedmim.experiments.job_messages import Progress, Told, pickled, sending, show
from fedmim.experiments.ray_work import RayOrder, do_order
from fedmim.experiments.run_cost import longest_first, source_of
from fedmim.experiments.sources import AnySource, forget_data
from fedmim.experiments.works import Display, Ended, Failed, JobWork, LostJobError
from fedmim.files import make_folder, remove, write_text
from fedmim.signals import held

RUN_ATTEMPTS = 3  # per work whose node or process is lost
LOOK = 0.1  # seconds between two looks at the messages
STUCK = 30.0  # seconds without a message of a task after which the user is told
STOP = 120.0  # seconds for the works to stop at a safe point


@dataclass(eq=False)
class RayTask:
    """A work on the cluster."""

    work: JobWork  # in the folder that it claimed
    reference: Any = None
    attempt: int = 0
    claim: ExitStack = field(default_factory=ExitStack)


class RayWorks:
    """A pool that does works on a Ray cluster. `shared`: whether the nodes see the driver's folders; None: find out."""

    def __init__(self, ray: ModuleType, count: int, gpus: float = 0.0, shared: bool | None = None) -> None:
        self.count = count
        self._ray, self._gpus, self._shared = ray, gpus, shared
        self._queue: Any = None
        self._tasks: dict[int, RayTask] = {}  # by the number of the work
        self._data: dict[AnySource, Any] = {}  # references
        self._heard = False  # whether any task has sent a message

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End all tasks. Ctrl-C and SIGTERM stop the runs at a safe point first; a second one does not wait."""
        try:
            if kind is not None and issubclass(kind, KeyboardInterrupt):
                self._stop()
        finally:
            for task in self._tasks.values():
                with suppress(Exception):  # it may have ended
                    self._ray.cancel(task.reference, force=True)
                task.claim.close()
            self._tasks = {}
            if self._queue is not None:
                self._queue.shutdown(force=True)
            self._queue = None

    def __call__(self, works: Sequence[JobWork], display: Display) -> Iterator[tuple[int, Ended | Failed]]:
        """Do all works and yield their numbers and answers, as they end. A failed one does not stop the others."""
        left = longest_first([work.run for work in works])
        if left:
            self._prepare(works[0].folder)
        deadline = time.monotonic() + STUCK
        while left or self._tasks:
            yield from self._hand_out(works, left)
            self._take_messages(display)
            for number in self._ended():
                self._take_messages(display)
                if (answer := self._answer(number)) is not None:
                    yield number, answer
            if not self._heard and time.monotonic() > deadline:
                deadline = math.inf
                warn_user("ray: waiting for a free CPU or GPU in the cluster; see `ray status`")

    def _prepare(self, folder: Path) -> None:
        from ray.util.queue import Queue
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if self._shared is None:
            self._shared = all_nodes_see(self._ray, folder)
        if self._queue is None:  # on the driver's node: with another one, all messages could be lost
            here = NodeAffinitySchedulingStrategy(self._ray.get_runtime_context().get_node_id(), soft=False)
            self._queue = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})

    def _hand_out(self, works: Sequence[JobWork], left: list[int]) -> Iterator[tuple[int, Ended | Failed]]:
        """Start as many works as there may be at once; yields those that are done already or cannot start."""
        while left and len(self._tasks) < self.count:
            needed = {source_of(works[number].run) for number in left}
            number = left.pop(0)
            task = RayTask(works[number])
            try:
                self._share(source_of(works[number].run), needed)
                if not self._shared:
                    claimed = task.claim.enter_context(works[number].claimed())
                    if claimed is None:
                        yield number, Ended(None)
                        continue
                    task.work = claimed
                self._submit(number, task)
            except Exception as error:  # of the data, the lock, ...
                task.claim.close()
                yield number, Failed(error)

    def _share(self, source: AnySource, needed: set[AnySource]) -> None:
        """Put a data set into the object store, and free those that no work needs any more."""
        from fedmim.simulation.packing import pack_value

        self._data = {each: reference for each, reference in self._data.items() if each in needed}
        if source not in self._data:
            data = source.load()
            with sending():
                self._data[source] = self._ray.put(pack_value(data))
            forget_data()  # this process does not train

    def _submit(self, number: int, task: RayTask) -> None:
        from fedmim.simulation.ray_actors import versions
        from fedmim.simulation.ray_cluster import worker_options

        source, folder = source_of(task.work.run), None if self._shared else read_files(task.work.folder)
        work = task.work.moved(task.work.folder.resolve())  # a node has another working directory
        order = RayOrder(number, task.attempt, pickled(work), source, versions(), folder)
        # A retry begins with the newest files, so Ray must not retry.
        kind = self._ray.remote(do_order).options(max_retries=0, **worker_options(self._gpus))
        with held():
            task.reference = kind.remote(order, self._data[source], self._queue)
            self._tasks[number] = task

    def _take_messages(self, display: Display) -> None:
        """Show the progress, and write the files that came back."""
        for number, message in self._messages():
            task, self._heard = self._tasks.get(number), True
            if isinstance(message, Progress | Told):
                show(message, display)
            elif isinstance(message, ChangedFiles) and task is not None:
                message.write(task.work.folder)

    def _messages(self) -> list[tuple[int, Any]]:
        with held():  # an interrupt must not lose messages
            waiting = self._queue.qsize()
            return self._queue.get_nowait_batch(waiting) if waiting else []

    def _ended(self) -> list[int]:
        """Wait briefly for works to end."""
        numbers = {task.reference: number for number, task in self._tasks.items()}
        if not numbers:
            return []
        ended, _ = self._ray.wait(list(numbers), num_returns=len(numbers), timeout=LOOK)
        return [numbers[reference] for reference in ended]

    def _answer(self, number: int) -> Ended | Failed | None:
        """The answer of a work that has ended; None if it was lost and goes on elsewhere."""
        from ray.exceptions import RayError

        task = self._tasks.pop(number)
        try:
            answer: Ended | Failed = self._ray.get(task.reference)
        except RayError as error:
            task.attempt += 1
            if task.attempt < RUN_ATTEMPTS:
                warn_user(
                    f"ray: lost the process or node of {task.work.run.label} ({type(error).__name__}); it goes on"
                )
                self._submit(number, task)
                return None
            answer = Failed(LostJobError(f"ray: lost {RUN_ATTEMPTS} processes or nodes with this run ({error})"))
        return self._close(task, answer)

    def _close(self, task: RayTask, answer: Ended | Failed) -> Ended | Failed:
        """Release the folder; for a run of a sweep, this adds it to the archive."""
        error = answer.error if isinstance(answer, Failed) else None
        try:
            task.claim.__exit__(type(error) if error else None, error, None)
        except Exception as problem:
            return Failed(problem)
        return answer

    def _stop(self) -> None:
        """Interrupt all works, and wait until they have written their checkpoints and sent them back."""
        for task in self._tasks.values():
            self._ray.cancel(task.reference)
        deadline = time.monotonic() + STOP
        while self._tasks and time.monotonic() < deadline:
            self._take_messages(Silent())
            for number in self._ended():
                self._take_messages(Silent())
                self._tasks.pop(number).claim.close()


class Silent:
    """Shows nothing."""

    def record(self, *_: object) -> None:
        """Nothing."""

    def skip(self, *_: object) -> None:
        """Nothing."""

    def fail(self, *_: object) -> None:
        """Nothing."""


def all_nodes_see(ray: ModuleType, folder: Path) -> bool:
    """Whether all nodes of the cluster see this folder under the same path. Writes a file there and removes it."""
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    make_folder(folder)
    file, token = folder.resolve() / f".{secrets.token_hex(8)}.part", secrets.token_hex(16)
    write_text(file, token)
    try:
        kind = ray.remote(sees)
        nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
        places = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
        looks = [kind.options(num_cpus=0, scheduling_strategy=place).remote(str(file), token) for place in places]
        return all(ray.get(looks, timeout=60.0))
    except RayError as error:
        raise UserError(
            f"ray: a node of the cluster does not answer ({str(error).strip().splitlines()[-1]}); install the same "
            "version of fedmim on every node, and see `ray status`"
        ) from error
    finally:
        remove(file)


def sees(path: str, token: str) -> bool:
    """Whether this machine sees the file with this content."""
    try:
        return Path(path).read_text(encoding="utf-8") == token
    except OSError:
        return False
