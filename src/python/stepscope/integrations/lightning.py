"""Stepscope in Lightning's ``Trainer``: steps, tokens, the model, and figures to its loggers.

    from stepscope.integrations.lightning import StepscopeCallback

    trainer = Trainer(callbacks=[StepscopeCallback(every=50)], logger=WandbLogger())
    trainer.fit(module)

Started with ``stepscope record -- python train.py``, each logger is given ``stepscope/mfu``, ``stepscope/step_time_ms``,
``stepscope/exposed_communication``, ``stepscope/gpu_idle`` and ``stepscope/memory/<category>_gb`` every so many steps and at
the end. Otherwise nothing happens.
"""

import logging
from typing import Any, Dict, Optional

try:
    from lightning.pytorch.callbacks import Callback  # type: ignore[import-not-found, unused-ignore]
except ImportError:
    from pytorch_lightning.callbacks import Callback  # type: ignore[assignment, import-not-found, no-redef, unused-ignore]

from ._training import Training

_log = logging.getLogger("stepscope")


class StepscopeCallback(Callback):  # type: ignore[misc, unused-ignore]
    """Annotates the steps of a ``Trainer``, and logs where their time and memory go.

    A step is one of ``trainer.global_step``: gradients of several batches may be accumulated in it. Its tokens are those of
    ``input_ids`` in the batch, or of its first tensor of whole numbers; the model is what the module, or its ``model``, has
    as ``config``. ``every`` is how many steps lie between figures, which are of these steps. ``peak_tflops`` is what a
    device computes at most, where that is not known.
    """

    def __init__(self, every: int = 50, peak_tflops: Optional[float] = None) -> None:
        super().__init__()
        self._trainer: Any = None
        self._training = Training(every, peak_tflops, self._log)
        self._replicas = 1

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """The training begins."""
        self._trainer = trainer
        self._replicas = _replicas(trainer)
        self._training.begin(_config(pl_module), bool(trainer.is_global_zero))

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """A batch begins, and a step with it unless one is open."""
        if not self._training.is_recorded:
            return
        if self._training.open_step is None:
            self._training.begin_step(trainer.global_step)
        try:
            self._training.see_batch(_shape_of_tokens(batch), self._replicas)
        except Exception as error:  # The training goes on.
            _log.debug("tokens are not counted: %s", error)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A batch ends, and the step with it if an optimizer stepped."""
        opened = self._training.open_step
        if opened is not None and trainer.global_step > opened:
            self._training.end_step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """The training ends."""
        self._training.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The training ends in an error: the step that is open ends."""
        self._training.end_step(leave_figures=True)

    def _log(self, figures: Dict[str, float], step: int) -> None:
        for logger in self._trainer.loggers:
            logger.log_metrics(figures, step=self._trainer.global_step)


def _config(module: Any) -> Any:
    """What a module says of its model, in words of Hugging Face's."""
    for holder in (module, getattr(module, "model", None)):
        config = getattr(holder, "config", None)
        if config is not None and (isinstance(config, dict) or hasattr(config, "to_dict")):
            return config
    return None


def _replicas(trainer: Any) -> int:
    """How many ranks train on data of their own."""
    sampler = getattr(getattr(trainer, "strategy", None), "distributed_sampler_kwargs", None) or {}
    return int(sampler.get("num_replicas", 1))


def _shape_of_tokens(batch: Any) -> Any:
    """The shape of the tokens in a batch, if they can be found."""
    if hasattr(batch, "shape"):
        return batch.shape if _is_whole(batch) else None
    named = batch.get("input_ids") if hasattr(batch, "get") else getattr(batch, "input_ids", None)
    if named is not None:
        return named.shape
    parts = batch.values() if hasattr(batch, "values") else batch
    for part in parts if isinstance(parts, (list, tuple)) or hasattr(batch, "values") else []:
        if hasattr(part, "shape") and len(part.shape) >= 2 and _is_whole(part):
            return part.shape
    return None


def _is_whole(tensor: Any) -> bool:
    """Whether it has whole numbers, as tokens are."""
    return not (tensor.is_floating_point() or tensor.is_complex())
