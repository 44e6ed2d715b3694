"""The injected library, as Python calls it."""

import ctypes
import os
from array import array

# What the library is told, by its numbers.
BACKWARD_BEGINS, BACKWARD_ENDS, OPTIMIZER_BEGINS, OPTIMIZER_ENDS, RECOMPUTATION_BEGINS, RECOMPUTATION_ENDS = range(6)
PARAMETERS, GRADIENTS, OPTIMIZER_STATE = range(3)
# What it tells.
HISTORY = 1


class Library:
    """The library that the driver loads too, if CUDA begins."""

    def __init__(self):
        path = os.environ["CUDA_INJECTION64_PATH"]
        # These take no time, and keep Python's lock: giving it away could take longer.
        quick = ctypes.PyDLL(path)
        slow = ctypes.CDLL(path)
        self.expect = _function(quick.stepscope_torch_expect)
        self._begin = _function(quick.stepscope_torch_begin, ctypes.c_char_p, returns=ctypes.c_uint32)
        self.mark = _function(
            quick.stepscope_torch_mark, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64, returns=ctypes.c_uint32
        )
        self._blocks = _function(quick.stepscope_torch_blocks, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t)
        self._buffers = _function(quick.stepscope_torch_buffers, ctypes.c_void_p, ctypes.c_size_t)
        self.device = _function(quick.stepscope_torch_device, ctypes.c_uint32)
        self._refuse = _function(slow.stepscope_torch_refuse, ctypes.c_char_p)
        self.history = _function(slow.stepscope_torch_history, ctypes.c_uint64)
        self.end = _function(slow.stepscope_torch_end)
        self.profiler_begins = _function(slow.stepscope_torch_profiler_begins)
        self.profiler_ends = _function(slow.stepscope_torch_profiler_ends)

    def begin(self, version):
        """Says that CUDA has begun; tells what is wanted."""
        return self._begin(version.encode())

    def refuse(self, why):
        """Says why memory is not recorded from now on: a text, or what went wrong."""
        if isinstance(why, BaseException) and not isinstance(why, RuntimeError):
            why = "%s: %s" % (type(why).__name__, why)
        self._refuse(str(why).replace("\0", "").encode("utf-8", "replace"))

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
