"""Stepscope in Python: read what a training run says, and have a training script say its steps.

Read a run, a PyTorch trace or a memory snapshot::

    import stepscope

    analysis = stepscope.analyze("runs/mine")
    analysis.mfu.value                 # 0.41
    analysis.kernels[0].name           # the kernel with the most time
    analysis.spans(rank=0)             # every kernel, as a pyarrow table
    stepscope.diff("runs/before", "runs/after")

Say steps, phases, tokens, the loss and the model in a training script. Under ``stepscope record`` they are recorded; otherwise these
functions do nothing::

    stepscope.model(config, seq_len=4096)
    for i, batch in enumerate(loader):
        with stepscope.step(i):
            stepscope.tokens(batch.numel(), replicas=world_size)
            with stepscope.phase("forward"):
                loss = model(batch)
        stepscope.loss(loss.item())
"""

from . import fleet
from ._analysis import Analysis, analyze
from ._annotations import loss, model, phase, step, tokens
from ._command import StepscopeError
from ._diff import Diff, diff
from ._recording import Recording, recording


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("stepscope")
        except PackageNotFoundError:
            # It lies on the path and is not installed: only installed packages have a version.
            pass
    raise AttributeError("module 'stepscope' has no attribute %r" % name)


__all__ = [
    "Analysis",
    "Diff",
    "Recording",
    "StepscopeError",
    "analyze",
    "diff",
    "fleet",
    "loss",
    "model",
    "phase",
    "recording",
    "step",
    "tokens",
]
