"""Summarize the ranks of a run on many machines, by an engine that you have: Dask, Ray, or any executor.

Each task runs the command on a part of the ranks, where it finds the run under the same path::

    from dask.distributed import Client
    import stepscope.fleet

    stepscope.fleet.summarize("/shared/runs/mine", client=Client("scheduler:8786"))
"""

import os
import socket
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from ._analysis import Ranks, rank_choice
from ._command import StepscopeError, run_json
from ._records import Record

#: Tasks for each worker that is known: some ranks take longer than others.
_TASKS_PER_WORKER = 4
#: How many tasks there are, where nothing says how many workers there are.
_TASKS = 64
#: What takes all ranks: a worker that Slurm started would take its part of them otherwise.
_ALL = ("--share", "0/1")


class SummarizedRank(Record):
    """A rank, and the file that it was reduced to."""

    rank: int
    bytes: Optional[int]
    steps: Optional[int]
    error: Optional[str]


class Task(Record):
    """What one task did: where, how long, and of which ranks. ``error`` says why ranks have no summary."""

    host: str
    seconds: float
    ranks: List[SummarizedRank]
    error: Optional[str]


def summarize(
    run: Union[str, "os.PathLike[str]"],
    client: Any = None,
    ranks: Optional[Ranks] = None,
    tasks: Optional[int] = None,
) -> List[Task]:
    """Reduces each rank of a run to a small file in its directory, as ``stepscope summarize`` does, and all of them together
    to one beside them, if no ``ranks`` are chosen.

    ``client`` is a Dask client, the module ``ray`` (or a Ray client), or a ``concurrent.futures`` executor; without one,
    this machine does it all. Workers need this package and the run under the same path. Whoever makes the files, they are
    the same, to the byte.

    >>> for task in stepscope.fleet.summarize("runs/mine", client=client):
    ...     print(task.host, task.seconds, [rank.rank for rank in task.ranks])

    Raises :class:`StepscopeError` when all tasks have ended, if one of them failed.
    """
    path = os.fspath(run)
    if "://" not in path:
        path = os.path.abspath(path)
    if tasks is not None and tasks < 1:
        raise StepscopeError("%d tasks cannot summarize anything" % tasks, "leave tasks out, or have 1 or more")
    if client is not None and not _is_ray(client) and not hasattr(client, "submit"):
        raise StepscopeError(
            "%r is nothing that runs tasks" % (client,),
            "pass a Dask client (dask.distributed.Client(...)), the module ray, or an executor of concurrent.futures",
        )
    chosen = rank_choice(ranks)
    if client is None:
        return _whole([_task(path, [*chosen, *_ALL])])
    count = tasks if tasks is not None else _tasks(client, path)
    shares = [["--share", "%d/%d" % (part, count)] for part in range(count)]
    done = _whole(_mapped(client, [(path, [*chosen, *share]) for share in shares]))
    if not chosen:
        # Ranks have their files now, so this one puts them together.
        _whole(_mapped(client, [(path, _ALL)]))
    return done


def _task(path: str, options: Sequence[str]) -> Dict[str, Any]:
    """Runs the command on some ranks, on whichever machine this is."""
    begun = time.monotonic()
    done: Dict[str, Any] = {"ranks": []}
    error = None
    try:
        done = run_json(["summarize", *options, path])
    except StepscopeError as failed:
        error = str(failed)
    return {"host": socket.gethostname(), "seconds": time.monotonic() - begun, "ranks": done["ranks"], "error": error}


def _is_ray(client: Any) -> bool:
    return hasattr(client, "remote") and hasattr(client, "get")


def _mapped(client: Any, tasks: Sequence[Any]) -> List[Dict[str, Any]]:
    """What an engine makes of tasks."""
    if _is_ray(client):
        remote = client.remote(_task)
        return list(client.get([remote.remote(*task) for task in tasks]))
    # A client of Dask remembers what a function gave, unless it is told that files change.
    submit: Callable[..., Any] = client.submit
    options: Dict[str, Any] = {"pure": False} if hasattr(client, "scheduler_info") else {}
    futures = [submit(_task, *task, **options) for task in tasks]
    return [future.result() for future in futures]


def _tasks(client: Any, path: str) -> int:
    """How many tasks there are: no more than ranks, and some for each worker."""
    workers = None
    if hasattr(client, "scheduler_info"):
        workers = sum(client.ncores().values())
    elif hasattr(client, "cluster_resources"):
        workers = int(client.cluster_resources().get("CPU", 0))
    else:
        workers = getattr(client, "_max_workers", None)
    wanted = _TASKS_PER_WORKER * workers if workers else _TASKS
    return max(1, min(wanted, _directories(path)))


def _directories(path: str) -> int:
    """How many directories of ranks a run has, at least one."""
    segments = os.path.join(path, "segments")
    folders = [path]
    if os.path.isdir(segments):
        folders += [os.path.join(segments, name) for name in os.listdir(segments)]
    counts = [sum(name.startswith("rank-") for name in os.listdir(folder)) for folder in folders if os.path.isdir(folder)]
    return max(counts, default=1) or 1


def _whole(done: Sequence[Dict[str, Any]]) -> List[Task]:
    failed = [task for task in done if task["error"] is not None]
    if failed:
        raise StepscopeError("%d of %d tasks failed: %s" % (len(failed), len(done), failed[0]["error"]))
    return [Task(task) for task in done]
