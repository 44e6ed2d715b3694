"""Callbacks: what they annotate and log, and that nothing they do fails or blocks a training.

Frameworks are stand-ins with the few names that are used, unless they are installed.
"""

import importlib
import json
import os
import sys
import types
import unittest
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Tuple
from unittest import mock

from stepscope import _recording
from stepscope.integrations import _background, _training
from support import SAMPLES


def _module(name: str, **values: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    vars(module).update(values)
    return module


def _callback(name: str) -> Any:
    """A callback's class, with a stand-in for what it is derived from."""
    stand_ins = {
        "transformers": _module("transformers", TrainerCallback=object),
        "lightning": _module("lightning"),
        "lightning.pytorch": _module("lightning.pytorch"),
        "lightning.pytorch.callbacks": _module("lightning.pytorch.callbacks", Callback=object),
    }
    with mock.patch.dict(sys.modules, stand_ins):
        sys.modules.pop("stepscope.integrations." + name, None)
        return importlib.import_module("stepscope.integrations." + name).StepscopeCallback


def recorded_into(run: Optional[Any]) -> Any:
    """This process as one that is recorded into a run, or not at all."""
    settings = {_recording.SETTINGS: json.dumps({"run": str(run)}), _recording.LIBRARY: "/no/such/library.so"}
    return mock.patch.dict(os.environ, settings if run is not None else {})


class Said:
    """What was said to the recording."""

    def __init__(self) -> None:
        self.steps: List[int] = []
        self.tokens: List[float] = []
        self.models: List[Tuple[Any, Any]] = []
        self.is_open = False

    def step(self, number: int) -> Any:
        said = self

        class Open:
            def __enter__(self) -> None:
                assert not said.is_open
                said.is_open = True
                said.steps.append(number)

            def __exit__(self, *error: object) -> None:
                assert said.is_open
                said.is_open = False

        return Open()

    def __enter__(self) -> "Said":
        self._patches = [
            mock.patch.object(_training, "step", self.step),
            mock.patch.object(_training, "tokens", lambda count, replicas=1: self.tokens.append(count * replicas)),
            mock.patch.object(_training, "model", lambda config, seq_len=None: self.models.append((config, seq_len))),
            mock.patch.object(_background, "_SETTLE_S", 0.0),
        ]
        for patch in self._patches:
            patch.start()
        return self

    def __exit__(self, *error: object) -> None:
        for patch in self._patches:
            patch.stop()


class Tensor:
    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def is_floating_point(self) -> bool:
        return False

    def is_complex(self) -> bool:
        return False


class Model:
    config = {"model_type": "gpt2"}
    training = True

    def __init__(self) -> None:
        self.hooks: List[Any] = []

    def register_forward_pre_hook(self, hook: Any, with_kwargs: bool) -> Any:
        self.hooks.append(hook)
        return SimpleNamespace(remove=lambda: self.hooks.remove(hook))

    def __call__(self, **named: Any) -> None:
        for hook in self.hooks:
            hook(self, (), named)


class Trainer:
    def __init__(self) -> None:
        self.logged: List[Dict[str, float]] = []
        self.control = SimpleNamespace(should_training_stop=False, should_log=True)

    def log(self, figures: Dict[str, float]) -> None:
        self.logged.append(figures)
        self.control.should_log = False


def hf_training(trainer: Trainer, steps: int = 5, every: int = 4) -> None:
    """What `transformers.Trainer.train` calls, with two micro-batches a step."""
    callback = _callback("hf")(trainer, every=every)
    args, model = SimpleNamespace(world_size=2), Model()
    control = trainer.control
    state = SimpleNamespace(global_step=0, max_steps=steps, is_world_process_zero=True, num_input_tokens_seen=0)
    callback.on_train_begin(args, state, control, model=model)
    for _ in range(steps):
        callback.on_step_begin(args, state, control, model=model)
        for _ in range(2):
            model(input_ids=Tensor(4, 128), labels=Tensor(4, 128))
        state.global_step += 1
        callback.on_step_end(args, state, control, model=model)
        assert control.should_log, "the trainer has still to log the loss"
    callback.on_train_end(args, state, control, model=model)
    assert not model.hooks


class HuggingFace(unittest.TestCase):
    def test_steps_tokens_and_model_are_said_and_figures_logged(self) -> None:
        trainer = Trainer()
        with recorded_into(SAMPLES / "dp2-naive"), Said() as said:
            hf_training(trainer)
        self.assertEqual((said.steps, said.is_open), ([0, 1, 2, 3, 4], False))
        self.assertEqual(said.tokens, [4 * 128 * 2] * 10)
        self.assertEqual(said.models, [(Model.config, 128)])
        last = trainer.logged[-1]
        self.assertAlmostEqual(last["stepscope/step_time_ms"], 138, delta=5)
        self.assertAlmostEqual(last["stepscope/mfu"], 0.47, delta=0.02)
        self.assertAlmostEqual(last["stepscope/memory/optimizer_state_gb"], 14.83, delta=0.01)
        self.assertTrue(0 < last["stepscope/exposed_communication"] < 1 and 0 < last["stepscope/gpu_idle"] < 1)

    def test_where_nothing_is_recorded_nothing_is_said_but_one_line(self) -> None:
        trainer = Trainer()
        with recorded_into(None), Said() as said, self.assertLogs("stepscope", "INFO") as log:
            hf_training(trainer)
        self.assertEqual((said.steps, said.tokens, trainer.logged, len(log.output)), ([], [], [], 1))

    def test_an_error_is_one_warning(self) -> None:
        trainer = Trainer()
        with recorded_into("/no/such/run"), Said() as said, self.assertLogs("stepscope", "WARNING") as log:
            hf_training(trainer, steps=12, every=2)
        self.assertEqual((len(said.steps), trainer.logged, len(log.output)), (12, [], 1))
        self.assertIn("/no/such/run", log.output[0])

    def test_a_logger_that_fails_is_one_warning(self) -> None:
        def log(figures: Dict[str, float]) -> None:
            raise RuntimeError("no network")

        trainer = Trainer()
        with recorded_into(SAMPLES / "dp2-naive"), Said(), self.assertLogs("stepscope", "WARNING") as logged:
            with mock.patch.object(trainer, "log", log):
                hf_training(trainer)
        self.assertEqual(len(logged.output), 1)
        self.assertIn("no network", logged.output[0])


class Lightning(unittest.TestCase):
    def test_a_step_is_one_of_the_optimizer(self) -> None:
        logged: List[Tuple[Dict[str, float], int]] = []
        logger = SimpleNamespace(log_metrics=lambda figures, step: logged.append((figures, step)))
        strategy = SimpleNamespace(distributed_sampler_kwargs={"num_replicas": 3})
        trainer = SimpleNamespace(global_step=0, is_global_zero=True, loggers=[logger], strategy=strategy)
        module = SimpleNamespace(model=SimpleNamespace(config={"model_type": "llama"}))
        with recorded_into(SAMPLES / "dp2-naive"), Said() as said:
            callback = _callback("lightning")(every=4)
            callback.on_train_start(trainer, module)
            for batch_idx in range(10):
                batch: Any = {"input_ids": Tensor(2, 64)} if batch_idx % 2 else [Tensor(2, 64), Tensor(2, 64)]
                callback.on_train_batch_start(trainer, module, batch, batch_idx)
                trainer.global_step += batch_idx % 2
                callback.on_train_batch_end(trainer, module, None, batch, batch_idx)
            callback.on_train_end(trainer, module)
        self.assertEqual((said.steps, said.is_open), ([0, 1, 2, 3, 4], False))
        self.assertEqual(said.tokens, [2 * 64 * 3] * 10)
        self.assertEqual(said.models, [({"model_type": "llama"}, 64)])
        self.assertEqual(logged[-1][1], 5)
        self.assertIn("stepscope/mfu", logged[-1][0])

    def test_a_step_that_ended_in_an_error_is_closed(self) -> None:
        trainer = SimpleNamespace(global_step=0, is_global_zero=True, loggers=[], strategy=None)
        with recorded_into(SAMPLES / "dp2-naive"), Said() as said:
            callback = _callback("lightning")()
            callback.on_train_start(trainer, None)
            callback.on_train_batch_start(trainer, None, ["no tokens"], 0)
            callback.on_exception(trainer, None, ValueError())
        self.assertEqual((said.steps, said.is_open), ([0], False))


if __name__ == "__main__":
    unittest.main()
