"""What the callbacks of all frameworks have in common: a step that is open, its tokens, and figures every so often."""

import logging
import time
from typing import Any, Callable, Dict, Optional

from .._annotations import Annotation, model, step, tokens
from ._background import Figures

_log = logging.getLogger("stepscope")
# How long the end of a training waits for its last figures.
_LAST_FIGURES_S = 30.0


class Training:
    """A training that is watched from hooks, which may come in any order and never fail it."""

    def __init__(self, every: int, peak_tflops: Optional[float], log: Callable[[Dict[str, float], int], None]) -> None:
        self._every = max(int(every), 1)
        self._log = log
        self._figures = Figures(peak_tflops)
        self._open: Optional[Annotation] = None
        self._number: Optional[int] = None
        self._first: Optional[int] = None
        self._asked: Optional[int] = None
        self._last: Optional[int] = None
        self._config: Any = None
        self._is_told = False
        self._is_logging = False

    @property
    def is_recorded(self) -> bool:
        """Whether anything is recorded."""
        return self._figures.is_recorded

    @property
    def open_step(self) -> Optional[int]:
        """The step that is open."""
        return self._number

    def begin(self, config: Any, is_leader: bool) -> None:
        """The training begins; one rank of the job leads, and logs."""
        self._is_logging = is_leader
        self._config = config
        self._is_told = False
        self._first = self._asked = self._last = None
        if not self.is_recorded:
            _log.info("this training is not recorded; start it with `stepscope record -- python ...`")

    def begin_step(self, number: int) -> None:
        """A step begins. One that is open, since it ended in an error, ends."""
        if not self.is_recorded:
            return
        self.end_step(leave_figures=True)
        self._open, self._number = step(number), number
        self._first = number if self._first is None else self._first
        self._open.__enter__()

    def see_batch(self, shape: Any, replicas: int) -> None:
        """A micro-batch of tokens of this rank: how many sequences, and how long."""
        if not self.is_recorded or shape is None or len(shape) < 1:
            return
        count = 1
        for size in shape:
            count *= int(size)
        tokens(count, replicas=replicas)
        # Sequences may differ in length; the first ones say how long they are.
        if not self._is_told and self._config is not None:
            self._is_told = True
            length = int(shape[-1]) if len(shape) >= 2 else None
            self._guard(lambda: model(self._config, seq_len=length))

    def end_step(self, leave_figures: bool = False) -> None:
        """The open step ends. Figures that are ready are logged, and others asked for."""
        if self._open is None or self._number is None:
            return
        self._open.__exit__(None, None, None)
        self._open, self._last, self._number = None, self._number, None
        if leave_figures or not self._is_logging:
            return
        self._guard(self._log_ready)
        since = self._last - (self._asked if self._asked is not None else (self._first or 0) - 1)
        if since >= self._every:
            self._ask()

    def end(self) -> None:
        """The training ends: its last figures are waited for, within bounds, and logged."""
        self.end_step(leave_figures=True)
        if not self._is_logging or not self.is_recorded:
            return
        deadline = time.monotonic() + _LAST_FIGURES_S
        self._figures.wait(_LAST_FIGURES_S)
        self._guard(self._log_ready)
        if self._last is not None and self._asked != self._last:
            self._ask()
            self._figures.wait(max(deadline - time.monotonic(), 0.0))
            self._guard(self._log_ready)
        self._is_logging = False

    def _ask(self) -> None:
        """Asks for the newest steps. The last of them may still run on the device, and the first of all warms up."""
        if self._last is None or self._first is None:
            return
        first, last = max(self._first + 1, self._last - self._every), self._last - 1
        if first <= last and self._figures.ask(first, last):
            self._asked = self._last

    def _log_ready(self) -> None:
        ready = self._figures.take()
        if ready and self._last is not None:
            self._log(ready, self._last)

    def _guard(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # The training goes on.
            self._figures.warn("%s: %s" % (type(error).__name__, error))
