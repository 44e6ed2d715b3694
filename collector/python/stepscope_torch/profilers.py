"""Makes room for the program's own profiler: CUPTI serves one at a time.

`torch.profiler` and `torch.autograd.profiler` go through three functions of PyTorch's C++: one prepares a profile, one starts
it, one ends it. Before the first of them asks CUPTI for anything, the injected library lets go of it; after the last, it takes
it back. The profiler gets what it would have had, and so does the program: whatever it returns or raises.
"""

import functools

from .hidden import hidden


def watch(torch, library, before):
    """Has the library let go of CUPTI whenever PyTorch's profiler needs it, and calls `before` that."""
    autograd = torch.autograd
    profiler = getattr(autograd, "profiler", None)
    names = ("_prepare_profiler", "_enable_profiler", "_disable_profiler")
    originals = [getattr(autograd, name, None) for name in names]
    # Whoever else stands in for these knows best.
    if None in originals or [getattr(profiler, name, None) for name in names] != originals:
        return
    room = Room(library, autograd.ProfilerActivity.CUDA, before)
    arounds = (room.around_prepare, room.around_enable, room.around_disable)
    for name, original, around in zip(names, originals, arounds):
        replacement = around(original)
        for module in (autograd, profiler):
            setattr(module, name, replacement)


class Room:
    """Whether the program's profiler has CUPTI, or wants it."""

    def __init__(self, library, cuda, before):
        self._library = library
        self._before = before
        self._cuda = cuda
        self._is_made = False
        # When it is prepared for the first time, PyTorch subscribes to CUPTI, whatever is to be profiled. If it cannot, it
        # profiles no GPU until the process ends.
        self._is_subscribed = False

    def around_prepare(self, original):
        @functools.wraps(original)
        def prepare_profiler(*arguments, **named):
            return self._begin(original, arguments, named, not self._is_subscribed)

        return hidden(prepare_profiler)

    def around_enable(self, original):
        @functools.wraps(original)
        def enable_profiler(*arguments, **named):
            return self._begin(original, arguments, named, False)

        return hidden(enable_profiler)

    def around_disable(self, original):
        @functools.wraps(original)
        def disable_profiler(*arguments, **named):
            try:
                return original(*arguments, **named)
            finally:
                self._end()

        return hidden(disable_profiler)

    def _begin(self, original, arguments, named, is_first):
        self._before()
        activities = named.get("activities", arguments[1] if len(arguments) > 1 else ())
        if not is_first and self._cuda not in activities:
            return original(*arguments, **named)
        self._make()
        self._is_subscribed = True
        try:
            return original(*arguments, **named)
        except BaseException:
            self._end()
            raise

    def _make(self):
        if not self._is_made:
            self._is_made = True
            self._library.profiler_begins()

    def _end(self):
        if self._is_made:
            self._is_made = False
            self._library.profiler_ends()
