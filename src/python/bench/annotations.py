"""What annotations cost in a training loop.

    python src/python/bench/annotations.py                              # not recorded: at most 200 ns a step
    stepscope record -- python src/python/bench/annotations.py          # recorded, as far as there is a GPU
"""

import sys
import timeit
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import stepscope

ALLOWED_NS = 200.0
# Short enough that some of many tries are not interrupted.
ROUNDS = 1000
TRIES = 1000


def step() -> None:
    """A step with nothing in it."""
    with stepscope.step(5):
        pass


def nothing() -> None:
    """What calling a function costs anyway."""


def nanoseconds(function: object) -> float:
    """The least time of one call, of many tries."""
    return 1e9 * min(timeit.repeat(function, number=ROUNDS, repeat=TRIES)) / ROUNDS  # type: ignore[arg-type]


def main() -> int:
    """Prints what a step, and what tokens cost."""
    base = nanoseconds(nothing)
    of_step = nanoseconds(step) - base
    of_tokens = nanoseconds(lambda: stepscope.tokens(1)) - base
    is_recorded = stepscope.recording() is not None
    print("recorded: %s   a step: %.0f ns   tokens: %.0f ns" % (is_recorded, of_step, of_tokens))
    if not is_recorded and of_step > ALLOWED_NS:
        print("a step may take %.0f ns" % ALLOWED_NS)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
