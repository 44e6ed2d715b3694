"""``stepscope.analyze``: what a run says."""

import os
import shutil
import tempfile
import warnings
import weakref
from pathlib import Path
from typing import Any, Callable, Generic, Iterable, List, Optional, Sequence, TypeVar, Union

from . import _command, _html, _tables
from ._records import Record, records
from .figures import (
    Clock,
    Collective,
    DataLoss,
    Finding,
    Gemm,
    Hang,
    Host,
    Kernel,
    Mfu,
    Module,
    Operator,
    Pipeline,
    Place,
    RankMemory,
    RankTime,
    Run,
    SourceLine,
    Step,
    StepTime,
    Straggler,
    Window,
)

Source = Union[str, "os.PathLike[str]"]
Steps = Union[str, int, range]
Ranks = Union[str, int, Iterable[int]]

_T = TypeVar("_T", bound=Record)


class Table(List[_T], Generic[_T]):
    """A list of the JSON's, which is a table when it is called.

    >>> analysis.kernels[0].total_ns
    103221
    >>> analysis.kernels(as_="pandas")
    """

    def __init__(self, rows: List[_T], table: Callable[..., Any]) -> None:
        super().__init__(rows)
        self._table = table

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._table(*arguments, **named)


class Analysis(Record):
    """What a run says: its attributes are those of ``stepscope analyze --format json``.

    >>> analysis = stepscope.analyze("runs/mine")
    >>> analysis.step_time.median_ns / 1e6, analysis.mfu.value
    (132.6, 0.487)
    >>> analysis.memory[0].at_peak["activations"]

    A notebook shows a report, and ``print`` its first lines. Every kernel, memory event and counter is in a table::

        analysis.spans(rank=0, as_="pandas")
        analysis.memory(rank=0)
        analysis.kernels(as_="polars")

    Tables need pyarrow. ``as_`` is "pyarrow" (the default), "pandas" or "polars". Without a rank they are of all ranks,
    with a column that says which.
    """

    schema: int
    run: Run
    data_loss: DataLoss
    clock: Clock
    window: Window
    ranks: List[RankTime]
    counted: List[RankTime]
    host: Optional[Host]
    step_time: Optional[StepTime]
    steps: List[Step]
    hang: Optional[Hang]
    mfu: Optional[Mfu]
    pipeline: Optional[Pipeline]
    collectives: List[Collective]
    stragglers: List[Straggler]
    places: List[Place]
    findings: List[Finding]
    memory: Table[RankMemory]
    kernels: Table[Kernel]
    operators: List[Operator]
    modules: List[Module]
    sources: List[SourceLine]
    gemms: List[Gemm]

    def __init__(self, values: Any, sources: Sequence[str], arguments: Sequence[str]) -> None:
        super().__init__({key: value for key, value in values.items() if key not in ("memory", "kernels")})
        self._values = values
        self._sources = list(sources)
        self._arguments = list(arguments)
        self._imported: Optional[Path] = None
        self._brief: Optional[str] = None
        self.memory = Table(records(RankMemory, values.get("memory")), self._memory_events)
        self.kernels = Table(records(Kernel, values.get("kernels")), self._kernel_table)

    def spans(self, rank: Optional[int] = None, as_: str = "pyarrow") -> Any:
        """Every kernel, copy, collective and annotation, of the whole recording."""
        return self._events("spans", rank, as_)

    def counters(self, rank: Optional[int] = None, as_: str = "pyarrow") -> Any:
        """Every value that was counted or sampled: loss, tokens, the GPU's power and clocks."""
        return self._events("counters", rank, as_)

    def _memory_events(self, rank: Optional[int] = None, as_: str = "pyarrow") -> Any:
        return self._events("memory", rank, as_)

    def _events(self, name: str, rank: Optional[int], as_: str) -> Any:
        lost = self.data_loss
        if lost is not None and (lost.unreadable_bytes or lost.unreadable_events):
            warnings.warn("a part of this recording is damaged; pyarrow does not notice, so rows may be wrong", stacklevel=3)
        return _tables.table(self.directory(), name, rank, as_)

    def _kernel_table(self, as_: str = "pyarrow") -> Any:
        return _tables.of_records(self.kernels, as_)

    def directory(self) -> Path:
        """The run directory. What another tool recorded is imported into a temporary one, once."""
        if len(self._sources) == 1:
            run = _tables.newest_segment(Path(self._sources[0]))
            if (run / "run.json").is_file():
                return run
        if self._imported is None:
            folder = tempfile.mkdtemp(prefix="stepscope-")
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            run = Path(folder) / "run"
            _command.run(["import", *self._sources, "--run", str(run)])
            self._imported = run
        return self._imported

    def __str__(self) -> str:
        if self._brief is None:
            try:
                self._brief = _command.brief(self._arguments)
            except _command.StepscopeError:
                # The run may be gone, and what it said is here.
                self._brief = "%s: %d ranks" % (self.run.name, len(self.ranks or []))
        return self._brief

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _html.analysis(self)


def analyze(
    path: Union[Source, Sequence[Source]],
    steps: Optional[Steps] = None,
    ranks: Optional[Ranks] = None,
    peak_tflops: Optional[float] = None,
    mfu_convention: Optional[str] = None,
) -> Analysis:
    """Analyzes a run directory, PyTorch traces or memory snapshots.

    >>> stepscope.analyze("runs/mine", steps=range(10, 20), ranks=[0, 1])
    >>> stepscope.analyze(["rank0.json.gz", "rank0.pickle"])

    ``steps`` is a range, one number, ``"10..20"`` or ``"all"``; the default is complete steps without warm-up. ``ranks``
    are numbers, or ``"0,2-5"``. ``peak_tflops`` is the peak of a device, if Stepscope does not know it.
    Raises :class:`StepscopeError`.
    """
    return _analyze(path, steps, ranks, peak_tflops, mfu_convention)


def _analyze(
    path: Union[Source, Sequence[Source]],
    steps: Optional[Steps] = None,
    ranks: Optional[Ranks] = None,
    peak_tflops: Optional[float] = None,
    mfu_convention: Optional[str] = None,
    patience: Optional[float] = None,
    quietly: bool = False,
) -> Analysis:
    sources = [os.fspath(path)] if isinstance(path, (str, os.PathLike)) else [os.fspath(one) for one in path]
    if not sources:
        raise ValueError("there is nothing to analyze: name a run, traces or snapshots")
    arguments = ["analyze", *choices(steps, peak_tflops, mfu_convention)]
    arguments += rank_choice(ranks)
    # Whatever a file is called, it is no option.
    arguments += [source if not source.startswith("-") else os.path.join(".", source) for source in sources]
    return Analysis(_command.run_json(arguments, patience, quietly), sources, arguments)


def rank_choice(ranks: Optional[Ranks]) -> List[str]:
    """The option that chooses ranks."""
    if ranks is None:
        return []
    return ["--ranks", str(ranks) if isinstance(ranks, (str, int)) else ",".join(str(rank) for rank in ranks)]


def choices(steps: Optional[Steps], peak_tflops: Optional[float], mfu_convention: Optional[str]) -> List[str]:
    """The options that ``analyze`` and ``diff`` have in common."""
    if isinstance(steps, range):
        if steps.step != 1:
            raise ValueError("steps that are left out cannot be chosen: %r" % steps)
        steps = "%d..%d" % (steps.start, steps.stop)
    options = {"--steps": steps, "--peak-tflops": peak_tflops, "--mfu-convention": mfu_convention}
    return [word for name, value in options.items() if value is not None for word in (name, str(value))]
