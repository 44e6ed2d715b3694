"""Whether ``stepscope record`` started this process, and into which run it is recorded."""

import json
import os
from pathlib import Path
from typing import Mapping, NamedTuple, Optional

# What `stepscope record` says to the processes that it starts, and the library that it has loaded into them.
SETTINGS = "STEPSCOPE_INJECTION"
LIBRARY = "CUDA_INJECTION64_PATH"
# All of its variables: another command of ours that this process starts is not to be recorded.
VARIABLES = (SETTINGS, LIBRARY, "NVTX_INJECTION64_PATH", "NCCL_PROFILER_PLUGIN")


class Recording(NamedTuple):
    """The recording that this process is a part of."""

    #: The run directory, which grows while the program runs.
    run: Path
    #: The library inside of this process that records.
    library: Path


def recording(environment: Optional[Mapping[str, str]] = None) -> Optional[Recording]:
    """The recording that this process is a part of, or None.

    >>> stepscope.recording()
    Recording(run=PosixPath('/home/me/runs/mine'), library=PosixPath('/usr/lib/libstepscope_inject.so'))

    A process that never uses CUDA is not recorded, although ``stepscope record`` started it.
    """
    environment = os.environ if environment is None else environment
    settings, library = environment.get(SETTINGS), environment.get(LIBRARY)
    if not settings or not library:
        return None
    try:
        run = json.loads(settings)["run"]
        return Recording(Path(run), Path(library))
    except (ValueError, KeyError, TypeError):
        return None
