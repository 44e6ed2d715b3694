"""The library that records this process, as Python calls it."""

import ctypes
import logging
import os
from typing import Any, Optional

from ._recording import recording

_log = logging.getLogger("stepscope")
# As much of a reason as is heard.
_ROOM = 500


class Library:
    """The functions that a program says its steps with."""

    def __init__(self, path: str) -> None:
        # They take no time, and keep Python's lock: giving it away could take longer.
        loaded = ctypes.PyDLL(path)
        self.begin_step = _function(loaded.stepscope_program_begin_step, ctypes.c_int64)
        self._begin_phase = _function(loaded.stepscope_program_begin_phase, ctypes.c_char_p, ctypes.c_size_t)
        self.end = _function(loaded.stepscope_program_end)
        self.tokens = _function(loaded.stepscope_program_tokens, ctypes.c_double)
        self.loss = _function(loaded.stepscope_program_loss, ctypes.c_double)
        self._model = _function(
            loaded.stepscope_program_model,
            ctypes.c_char_p,
            ctypes.c_size_t,
            ctypes.c_uint64,
            ctypes.c_char_p,
            ctypes.c_size_t,
            returns=ctypes.c_int,
        )

    def begin_phase(self, name: str) -> None:
        """Opens a phase on this thread."""
        encoded = name.encode("utf-8", "replace")
        self._begin_phase(encoded, len(encoded))

    def model(self, description: str, sequence_length: int) -> Optional[str]:
        """Says what is trained, in JSON; tells why, if that is not understood."""
        encoded = description.encode("utf-8", "replace")
        why = ctypes.create_string_buffer(_ROOM)
        refused = self._model(encoded, len(encoded), sequence_length, why, _ROOM)
        return why.value.decode("utf-8", "replace") if refused else None


def _function(function: Any, *arguments: Any, returns: Any = None) -> Any:
    function.argtypes = arguments
    function.restype = returns
    return function


def load() -> Optional[Library]:
    """The library, if this process is to be recorded. Without it the program runs as if there were none."""
    found = recording()
    if found is None:
        return None
    try:
        return Library(os.fspath(found.library))
    except (OSError, AttributeError) as error:
        # An older library has no such functions.
        _log.warning("annotations are not recorded: %s", error)
        return None
