"""``stepscope.diff``: what changed between two runs."""

import os
from typing import Any, List, Optional, Sequence

from . import _command, _html
from ._analysis import Source, Steps, choices
from ._records import Record
from .figures import Metric, PeakMemoryChange, StepTimeChange


class Diff(Record):
    """What changed: its attributes are those of ``stepscope diff --format json``.

    >>> diff = stepscope.diff("runs/before", "runs/after")
    >>> diff.step_time.change_ns, [cause.cause for cause in diff.step_time.causes if cause.significant]
    (-5904218, ['exposed all-reduce (dp)', 'matmul kernels'])

    The causes add up to the change, for time and for memory. A notebook shows a report, and ``print`` its first lines.
    """

    schema: int
    base: str
    other: str
    comparable: bool
    why_not: List[str]
    notes: List[str]
    step_time: Optional[StepTimeChange]
    peak_memory: Optional[PeakMemoryChange]
    metrics: List[Metric]

    def __init__(self, values: Any, arguments: Sequence[str]) -> None:
        super().__init__(values)
        self._arguments = list(arguments)
        self._brief: Optional[str] = None

    def metric(self, name: str) -> Optional[Metric]:
        """A figure by its name, such as ``mfu``."""
        return next((metric for metric in self.metrics if metric.metric == name), None)

    def __str__(self) -> str:
        if self._brief is None:
            try:
                self._brief = _command.brief(self._arguments)
            except _command.StepscopeError:
                self._brief = "%s and %s" % (self.base, self.other)
        return self._brief

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _html.diff(self)


def diff(
    base: Source,
    other: Source,
    steps: Optional[Steps] = None,
    peak_tflops: Optional[float] = None,
    mfu_convention: Optional[str] = None,
) -> Diff:
    """Compares two runs, PyTorch traces or memory snapshots: what changed, and why.

    >>> stepscope.diff("runs/before", "runs/after", steps="all")

    The arguments are those of :func:`analyze`. Raises :class:`StepscopeError`.
    """
    sources = [os.fspath(base), os.fspath(other)]
    sources = [source if not source.startswith("-") else os.path.join(".", source) for source in sources]
    arguments = ["diff", *choices(steps, peak_tflops, mfu_convention), *sources]
    return Diff(_command.run_json(arguments), arguments)
