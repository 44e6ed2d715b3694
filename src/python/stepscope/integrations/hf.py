"""Stepscope in Hugging Face's ``Trainer``: steps, tokens, the model, and figures to whatever it reports to.

    from stepscope.integrations.hf import StepscopeCallback

    trainer = Trainer(model=model, args=args, train_dataset=data)
    trainer.add_callback(StepscopeCallback(trainer))
    trainer.train()

Started with ``stepscope record -- python train.py``, the trainer logs ``stepscope/mfu``, ``stepscope/step_time_ms``,
``stepscope/exposed_communication``, ``stepscope/gpu_idle`` and ``stepscope/memory/<category>_gb`` every so many steps and at
the end, to W&B, TensorBoard, MLflow or whatever ``report_to`` names. Otherwise it does nothing.
"""

import logging
from typing import Any, Dict, Optional

from transformers import TrainerCallback  # type: ignore[import-not-found, unused-ignore]

from .._annotations import loss
from ._training import Training

_log = logging.getLogger("stepscope")


class StepscopeCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Annotates the steps of a ``Trainer``, and has it log where their time and memory go.

    ``trainer`` is whose ``log`` is called: that is how figures reach what it reports to. Without it steps, tokens and the
    model are recorded, and nothing is logged. ``every`` is how many steps lie between figures, which are of these steps.
    ``peak_tflops`` is what a device computes at most, where that is not known.

    Tokens are those that the model is called with, padding included. With ``torch_compile`` nothing is hooked into the
    model; then ``include_num_input_tokens_seen`` has the trainer count them.
    """

    def __init__(self, trainer: Any = None, every: int = 50, peak_tflops: Optional[float] = None) -> None:
        super().__init__()
        self._trainer = trainer
        self._training = Training(every, peak_tflops, self._log)
        self._replicas = 1
        self._hook: Any = None
        self._seen: Optional[int] = None

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """The training begins."""
        is_leader = bool(state.is_world_process_zero) and self._trainer is not None
        self._training.begin(getattr(model, "config", None), is_leader)
        if not self._training.is_recorded:
            return
        if self._trainer is None and state.is_world_process_zero:
            _log.warning("figures are not logged: use trainer.add_callback(StepscopeCallback(trainer))")
        self._replicas = _replicas(args)
        if model is not None and self._hook is None and not getattr(args, "torch_compile", False):
            self._hook = model.register_forward_pre_hook(self._model_is_called, with_kwargs=True)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A step begins."""
        self._seen = getattr(state, "num_input_tokens_seen", None)
        self._training.begin_step(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A step ends."""
        seen = getattr(state, "num_input_tokens_seen", None)
        if self._hook is None and seen and self._seen is not None and seen > self._seen:
            self._training.see_batch((int(seen) - int(self._seen),), 1)
        should_log = control.should_log
        self._training.end_step()
        if control.should_training_stop or 0 < (state.max_steps or 0) <= state.global_step:
            self._training.end()
        # The trainer takes our log for its own, which is still to come if this step has one.
        control.should_log = should_log

    def on_log(self, args: Any, state: Any, control: Any, logs: Optional[Dict[str, float]] = None, **kwargs: Any) -> None:
        """The trainer logs: the loss, mostly."""
        if logs and "loss" in logs:
            loss(logs["loss"])

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The training ends."""
        self._training.end()
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _model_is_called(self, module: Any, arguments: Any, named: Any) -> None:
        try:
            if module.training and self._training.open_step is not None:
                ids = named.get("input_ids")
                ids = ids if ids is not None else next(iter(arguments), None)
                self._training.see_batch(getattr(ids, "shape", None), self._replicas)
        except Exception as error:  # The training goes on.
            _log.debug("tokens are not counted: %s", error)

    # A compiler is not to take this into its graph.
    _model_is_called._torchdynamo_disable = True  # type: ignore[attr-defined]

    def _log(self, figures: Dict[str, float], step: int) -> None:
        if self._trainer is not None:
            self._trainer.log(figures)


def _replicas(args: Any) -> int:
    """How many ranks train on data of their own."""
    split = getattr(args, "parallelism_config", None)
    if split is not None:
        sizes = [getattr(split, name, 1) or 1 for name in ("dp_replicate_size", "dp_shard_size")]
        return int(sizes[0]) * int(sizes[1])
    return int(getattr(args, "world_size", 1) or 1)
