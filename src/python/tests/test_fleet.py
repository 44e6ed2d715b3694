"""Summaries that engines make: whoever makes them, they are the same."""

import concurrent.futures
import os
import secrets
import shutil
import tempfile
import unittest
import unittest.mock
from pathlib import Path
from typing import Any, Dict, List

import stepscope
from stepscope.fleet import Task
from support import SAMPLES, needs

SAMPLE = SAMPLES / "dp2-bucketed"


def _summaries(run: Path) -> Dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in run.glob("rank-*/summary.bin")}


class Fleet(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.expected = _summaries(self._summarized("alone", lambda run: stepscope.fleet.summarize(run)))
        self.assertEqual(sorted(self.expected), ["rank-00000", "rank-00001"])

    def _summarized(self, name: str, summarize: Any) -> Path:
        run = self.folder / name
        shutil.copytree(SAMPLE, run)
        tasks: List[Task] = summarize(run)
        self.assertEqual(sorted(rank.rank for task in tasks for rank in task.ranks), [0, 1])
        for task in tasks:
            self.assertTrue(task.host and task.seconds >= 0 and task.error is None)
            self.assertTrue(all(rank.bytes and rank.steps == 5 and rank.error is None for rank in task.ranks), task)
        return run

    def _assert_same(self, name: str, client: Any) -> None:
        run = self._summarized(name, lambda run: stepscope.fleet.summarize(run, client=client))
        self.assertEqual(_summaries(run), self.expected)

    def test_an_executor(self) -> None:
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as executor:
            self._assert_same("threads", executor)
        with concurrent.futures.ProcessPoolExecutor(max_workers=2) as executor:
            self._assert_same("processes", executor)

    @needs("distributed")
    def test_dask(self) -> None:
        from distributed import Client

        with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
            self._assert_same("dask", client)
            again = self.folder / "dask"
            (again / "rank-00000" / "summary.bin").unlink()
            stepscope.fleet.summarize(again, client=client)
            self.assertEqual(_summaries(again), self.expected, "what was asked for before is done again")

    @needs("ray")
    def test_ray(self) -> None:
        import ray

        package = {"PYTHONPATH": str(Path(stepscope.__file__).parents[1])}
        # Otherwise Ray leaves a token in the home directory.
        with unittest.mock.patch.dict(os.environ, {"RAY_AUTH_TOKEN": secrets.token_hex(32)}):
            ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": package})
            try:
                self._assert_same("ray", ray)
            finally:
                ray.shutdown()

    def test_ranks_and_tasks_can_be_chosen(self) -> None:
        run = self.folder / "chosen"
        shutil.copytree(SAMPLE, run)
        with concurrent.futures.ThreadPoolExecutor() as executor:
            tasks = stepscope.fleet.summarize(run, client=executor, ranks=[1], tasks=3)
        self.assertEqual([[rank.rank for rank in task.ranks] for task in tasks], [[1], [], []])
        self.assertEqual(sorted(_summaries(run)), ["rank-00001"])

    def test_a_task_that_fails_is_an_error(self) -> None:
        with self.assertRaises(stepscope.StepscopeError) as raised:
            stepscope.fleet.summarize(self.folder / "nothing")
        self.assertIn("1 of 1 tasks failed", raised.exception.message)

    def test_what_runs_no_tasks_is_refused(self) -> None:
        with self.assertRaisesRegex(stepscope.StepscopeError, "nothing that runs tasks"):
            stepscope.fleet.summarize(SAMPLE, client="scheduler:8786")
        with concurrent.futures.ThreadPoolExecutor() as executor:
            with self.assertRaisesRegex(stepscope.StepscopeError, "0 tasks cannot"):
                stepscope.fleet.summarize(SAMPLE, client=executor, tasks=0)
        with self.assertRaisesRegex(stepscope.StepscopeError, "object storage"):
            stepscope.fleet.summarize("file:///nowhere/run")


if __name__ == "__main__":
    unittest.main()
