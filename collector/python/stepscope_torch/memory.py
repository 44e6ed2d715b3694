"""Has PyTorch keep a history of its memory, and says what blocks are for. The library reads the history itself."""

import functools
import inspect
from time import perf_counter_ns

from . import library as says

# So many events of its allocator PyTorch is to keep. The library reads them before they are overwritten.
HISTORY_EVENTS = 65536
# After looking at all tensors, so many times as long passes before it is done again: the first few times, and later.
RESTS = (200, 1000)
FIRST_LOOKS = 10
THEIR_OWN = "the program keeps a history of its memory itself"


class Memory:
    """The memory of this process."""

    def __init__(self, torch, library, storages):
        self._torch = torch
        self._library = library
        self._storages = storages
        self._history = False
        self._observes = False
        self._look_took = 0
        self._looks = 0
        self._next_look = 0
        self._record_history = torch.cuda.memory._record_memory_history

    def watch_history(self):
        """The program may call for a history of its own: it gets it, and ours ends."""
        original = self._record_history

        @functools.wraps(original)
        def record_memory_history(*arguments, **named):
            self._leave_history()
            return original(*arguments, **named)

        self._torch.cuda.memory._record_memory_history = record_memory_history

    def before_step(self, optimizer):
        """To be called before an optimizer steps, when all gradients are there."""
        began = perf_counter_ns()
        self._storages.add_optimizer(optimizer)
        self._observes = self._history and began >= self._next_look
        if self._observes:
            self._library.blocks(says.GRADIENTS, self._storages.gradients())
        self._look_took = perf_counter_ns() - began

    def after_step(self):
        """To be called after it."""
        if not self._observes:
            return
        began = perf_counter_ns()
        self._observes = False
        self._look()
        took = self._look_took + perf_counter_ns() - began
        self._looks += 1
        self._next_look = perf_counter_ns() + RESTS[self._looks > FIRST_LOOKS] * took

    def _look(self):
        """Says where parameters and optimizer state are."""
        parameters, state = self._storages.parameters_and_state()
        self._library.blocks(says.PARAMETERS, parameters)
        self._library.blocks(says.OPTIMIZER_STATE, state)
        self._library.buffers(self._storages.bucket_sizes())
        device = self._storages.device()
        if device is not None:
            self._library.device(device)

    def follow(self, wishes):
        """Has the history kept or not, as is wanted. To be called where no pass goes on."""
        wanted = bool(wishes & says.HISTORY)
        if wanted == self._history:
            return
        if wanted:
            self._keep_history()
            self._library.history(HISTORY_EVENTS)
            self._next_look = 0
        else:
            self._library.history(0)
            self._record_history(None)
        self._history = wanted

    def _keep_history(self):
        if self._torch._C._cuda_isHistoryEnabled():
            raise RuntimeError(THEIR_OWN)
        known = inspect.signature(self._record_history).parameters
        arguments = {"context": None, "stacks": "python", "max_entries": HISTORY_EVENTS}
        # That a block is to be given back is of no interest, and a third of all events.
        wanted = {"skip_actions": ["free_requested"], "clear_history": True}
        arguments.update((name, value) for name, value in wanted.items() if name in known)
        self._record_history("all", **arguments)

    def _leave_history(self):
        try:
            if self._history:
                self._library.history(0)
            self._history = False
            self._library.refuse(THEIR_OWN)
        except Exception:
            # What the program asked for is not ours to refuse.
            pass

    def give_up(self, why):
        """Says why memory is not recorded any more, and ends the history if it is ours."""
        self._library.refuse(why)
        if self._history:
            self._history = False
            self._record_history(None)

    def end(self):
        """Says what memory there is in the end."""
        if self._history:
            self._look()
            self._library.blocks(says.GRADIENTS, self._storages.gradients())
