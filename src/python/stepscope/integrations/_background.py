"""Figures of the last steps of the run that is being recorded, computed beside the training.

The ``stepscope`` command reads the run directory in a process of its own, at the lowest priority, and a thread waits for it.
Nothing here blocks the training or fails it: what goes wrong is one warning, and then there are no figures.
"""

import logging
import threading
import time
from typing import Any, Dict, Optional, Tuple

from .._analysis import Analysis, _analyze
from .._command import StepscopeError
from .._recording import Recording, recording

_log = logging.getLogger("stepscope")
_PREFIX = "stepscope/"
# The recorder writes every 150 ms, and the device is behind the host.
_SETTLE_S = 1.0
# An analysis that takes longer is given up.
_PATIENCE_S = 300.0


class Figures:
    """Asks for figures, and has them some time later.

    >>> figures = Figures()
    >>> figures.ask(first=100, last=149)
    >>> figures.take()   # None until they are there
    """

    def __init__(self, peak_tflops: Optional[float] = None) -> None:
        self._recording = recording()
        self._peak_tflops = peak_tflops
        self._thread: Optional[threading.Thread] = None
        self._lock = threading.Lock()
        self._ready: Optional[Dict[str, float]] = None
        self._has_warned = False

    @property
    def is_recorded(self) -> bool:
        """Whether there is a run to read."""
        return self._recording is not None

    def ask(self, first: int, last: int) -> bool:
        """Asks for the figures of steps, both ends included, unless an earlier question is still being answered."""
        if self._recording is None or (self._thread is not None and self._thread.is_alive()):
            return False
        self._thread = threading.Thread(
            target=self._answer, args=(self._recording, (first, last)), name="stepscope-figures", daemon=True
        )
        self._thread.start()
        return True

    def take(self) -> Optional[Dict[str, float]]:
        """The newest figures, once."""
        with self._lock:
            ready, self._ready = self._ready, None
            return ready

    def wait(self, seconds: float) -> None:
        """Waits for an answer, for so long."""
        if self._thread is not None:
            self._thread.join(seconds)

    def warn(self, error: object) -> None:
        """Says what went wrong, the first time."""
        if not self._has_warned:
            self._has_warned = True
            _log.warning("figures of this training are missing: %s", error)

    def _answer(self, recorded: Recording, steps: Tuple[int, int]) -> None:
        try:
            time.sleep(_SETTLE_S)
            first, last = steps
            found = _analyze(
                recorded.run,
                steps=range(first, last + 1),
                peak_tflops=self._peak_tflops,
                patience=_PATIENCE_S,
                quietly=True,
            )
            figures = metrics(found)
        except StepscopeError as error:
            self.warn(error.message)
        except Exception as error:  # The training goes on, whatever it is.
            self.warn("%s: %s" % (type(error).__name__, error))
        else:
            with self._lock:
                self._ready = figures


def metrics(of: Analysis) -> Dict[str, float]:
    """The figures of an analysis that are worth a plot over time. What is not known is left out."""
    found: Dict[str, Any] = {}
    if of.step_time is not None:
        found["step_time_ms"] = of.step_time.median_ns / 1e6
        found["tokens_per_second"] = of.step_time.tokens_per_second
    if of.mfu is not None:
        found["mfu"] = of.mfu.value
    ranks = of.counted or []
    span = sum(rank.span_ns for rank in ranks)
    if span:
        found["exposed_communication"] = sum(rank.exposed_communication_ns for rank in ranks) / span
        found["gpu_idle"] = sum(rank.idle_ns for rank in ranks) / span
    fullest = max(of.memory, key=lambda memory: memory.peak_bytes, default=None)
    for category, amount in (fullest.at_peak if fullest is not None else {}).items():
        found["memory/%s_gb" % category] = amount / 1e9
    return {_PREFIX + name: float(value) for name, value in found.items() if value is not None}
