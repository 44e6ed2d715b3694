"""The injected library, as Python calls it."""

import ctypes
import json
import os
from array import array

# What the library is told, by its numbers.
(
    BACKWARD_BEGINS,
    BACKWARD_ENDS,
    OPTIMIZER_BEGINS,
    OPTIMIZER_ENDS,
    RECOMPUTATION_BEGINS,
    RECOMPUTATION_ENDS,
    CLOSURE_BEGINS,
    CLOSURE_ENDS,
    EVALUATION_BEGINS,
    EVALUATION_ENDS,
    CHECKPOINT_BEGINS,
    CHECKPOINT_ENDS,
    LOADING_BEGINS,
    LOADING_ENDS,
) = range(14)
PARAMETERS, GRADIENTS, OPTIMIZER_STATE = range(3)
# What it tells.
HISTORY = 1
OPERATORS = 2
DETAILS = 4
LOSS = 8
# No text that it is told is longer.
LONGEST = 1 << 20
# What it calls.
_CALLBACK = ctypes.CFUNCTYPE(None)


class Library:
    """The library that the driver loads too, if CUDA begins."""

    def __init__(self):
        path = os.environ["CUDA_INJECTION64_PATH"]
        # These take no time, and keep Python's lock: giving it away could take longer.
        quick = ctypes.PyDLL(path)
        slow = ctypes.CDLL(path)
        text, size, number = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64
        self.expect = _function(quick.stepscope_torch_expect)
        self._begin = _function(quick.stepscope_torch_begin, text, returns=ctypes.c_uint32)
        self.mark = _function(
            quick.stepscope_torch_mark, ctypes.c_uint32, number, number, returns=ctypes.c_uint32
        )
        self.look = _function(quick.stepscope_torch_look, ctypes.c_uint32)
        self.enter = _function(quick.stepscope_torch_enter, text, text)
        self.leave = _function(quick.stepscope_torch_leave, ctypes.c_uint32)
        self.tokens = _function(quick.stepscope_torch_tokens, ctypes.c_double)
        self.lost = _function(quick.stepscope_torch_lost, ctypes.c_double, number)
        self._blocks = _function(quick.stepscope_torch_blocks, ctypes.c_uint32, ctypes.c_void_p, size)
        self._buffers = _function(quick.stepscope_torch_buffers, ctypes.c_void_p, size)
        self.device = _function(quick.stepscope_torch_device, ctypes.c_uint32)
        self._model = _function(slow.stepscope_torch_model, text, size, returns=ctypes.c_uint32)
        self._groups = _function(slow.stepscope_torch_groups, text, size, returns=ctypes.c_uint32)
        self._failed = _function(slow.stepscope_torch_failed, text, text)
        self._raised = _function(slow.stepscope_torch_raised, text)
        self._stacks = _function(slow.stepscope_torch_stacks, text, size)
        self._in_flight = _function(slow.stepscope_torch_in_flight, text, size)
        self._when_asked = _function(slow.stepscope_torch_when_asked, _CALLBACK)
        self._asked = None
        self._refuse = _function(slow.stepscope_torch_refuse, text)
        self.history = _function(slow.stepscope_torch_history, number)
        self.end = _function(slow.stepscope_torch_end)
        self.profiler_begins = _function(slow.stepscope_torch_profiler_begins)
        self.profiler_ends = _function(slow.stepscope_torch_profiler_ends)

    def begin(self, version):
        """Says that CUDA has begun; tells what is wanted."""
        return self._begin(version.encode())

    def refuse(self, why):
        """Says why memory is not recorded from now on: a text, or what went wrong."""
        self._refuse(_why(why))

    def failed(self, source, why):
        """Says why a source of knowledge has failed: a text, or what went wrong."""
        self._failed(source.encode(), _why(why))

    def raised(self, what):
        """Says what the program raises and nobody catches."""
        self._raised(_why(what))

    def when_asked(self, tell):
        """Has a function called, on a thread of the library's own, when somebody asks where the program is."""
        self._asked = _CALLBACK(tell)
        self._when_asked(self._asked)

    def stacks(self, threads):
        """Says where threads are: their names, and their calls by function, file and line."""
        text = json.dumps(threads).encode()
        self._stacks(text, len(text))

    def in_flight(self, pickle):
        """Says what PyTorch's Flight Recorder knows."""
        self._in_flight(pickle, len(pickle))

    def model(self, description):
        """Says what is trained, and tells whether that is understood."""
        return _say(self._model, description)

    def groups(self, description):
        """Says which groups of ranks there are, and tells whether that is understood."""
        return _say(self._groups, description)

    def blocks(self, category, addresses):
        """Says where all blocks of a category are."""
        numbers = array("Q", addresses)
        self._blocks(category, *numbers.buffer_info())

    def buffers(self, sizes):
        """Says how large buffers for communication are."""
        numbers = array("Q", sizes)
        self._buffers(*numbers.buffer_info())


def _function(function, *arguments, returns=None):
    function.argtypes = arguments
    function.restype = returns
    return function


def _say(function, description):
    text = json.dumps(description, default=str).encode()
    return len(text) <= LONGEST and function(text, len(text)) == 1


def _why(why):
    if isinstance(why, BaseException) and not isinstance(why, RuntimeError):
        why = "%s: %s" % (type(why).__name__, why)
    return str(why).replace("\0", "").encode("utf-8", "replace")
