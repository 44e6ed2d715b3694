"""Where the threads of the program are, and what its collectives do, when somebody asks since it does not go on.

A thread of the library calls this when it has Python's lock. It waits for nothing else: whatever the program waits for may be
held by a thread that does not go on.
"""

import sys
import threading

# No more of these are told.
MOST_THREADS = 64
MOST_CALLS = 64
# What PyTorch calls its function that tells what its Flight Recorder knows: of NCCL, or of any backend.
DUMPS = ("_dump_nccl_trace", "_dump_fr_trace")


def watch(torch, library):
    """Has the library call this when somebody asks."""

    def tell():
        try:
            # First: with the stacks the answer is whole.
            dump = flight_recorder(torch)
            if dump:
                library.in_flight(dump)
        except Exception:
            # Then the stacks say what there is.
            pass
        try:
            library.stacks(threads())
        except Exception:
            # Then nobody hears of it.
            pass

    library.when_asked(tell)


def threads():
    """The threads of the program, the main one first: their names and calls, the innermost first."""
    # Without the lock that goes with it, which may never be given back.
    names = {ident: thread.name for ident, thread in list(threading._active.items())}
    main, own = threading.main_thread().ident, threading.get_ident()
    frames = sorted(sys._current_frames().items(), key=lambda item: item[0] != main)
    told = [(names.get(ident, "thread %d" % ident), _calls(frame)) for ident, frame in frames if ident != own]
    return told[:MOST_THREADS]


def _calls(frame):
    calls = []
    while frame is not None and len(calls) < MOST_CALLS:
        code = frame.f_code
        calls.append((getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno or 0))
        frame = frame.f_back
    return calls


def flight_recorder(torch):
    """What PyTorch's Flight Recorder knows, pickled, if the program communicates."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    for name in DUMPS:
        dump = getattr(torch._C._distributed_c10d, name, None)
        said = dump() if dump is not None else None
        if said:
            return said
    return None
