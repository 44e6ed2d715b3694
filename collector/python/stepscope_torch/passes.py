"""Which pass of the training the program is in: hooks on optimizers and autograd, and around evaluation and saving."""

import functools
import importlib
import sys

from . import library as says
from .hidden import hidden


class Passes:
    """Hears of passes, and says them to whoever listens, in order.

    A listener is called with an event and the optimizer that it is of, if it is of one.
    """

    def __init__(self, torch, phases, listener):
        self._torch = torch
        self._phases = phases
        self._listener = listener
        self._checkpoint_is_watched = False
        self._recomputations = []
        self._steps = 0
        self._backward = 0
        # Classes whose models are seen when they are evaluated, and what is to be done when one is trained again.
        self._evaluated = []
        self._leave_evaluation = None

    def watch_optimizers(self, before, after, ended):
        """Calls these for each step of an optimizer: `before` it, with the optimizer, when all gradients are there; `after` it;
        and when that is said, with what the listener gave back."""
        # The name `torch.optim.optimizer` is taken away there once it is imported.
        optimizer = importlib.import_module("torch.optim.optimizer")

        def begins(which, arguments, named):
            self._listener(says.OPTIMIZER_BEGINS, which)
            wrapped = self._phases.run(self._with_closure, which, arguments, named, before)
            if wrapped is None:
                before(which)
            return wrapped

        def ends(which, arguments, named):
            self._steps += 1
            after()
            ended(self._listener(says.OPTIMIZER_ENDS, which))

        optimizer.register_optimizer_step_pre_hook(hidden(begins))
        optimizer.register_optimizer_step_post_hook(hidden(ends))

    def are_optimizers_silent(self):
        """Whether hooks are off optimizers again: some versions of PyTorch take them off once they compile something."""
        hook = getattr(importlib.import_module("torch.optim.optimizer").Optimizer, "profile_hook_step", None)
        if hook is None:
            return False
        step = self._torch.optim.AdamW.step
        return getattr(step, "hooked", False) and step.__code__ is not hook(step).__code__

    def _with_closure(self, which, arguments, named, before):
        """What an optimizer is called with, where that has a closure: the passes in it are none of the optimizer's."""
        closure = named.get("closure") or (arguments[1] if len(arguments) > 1 else None)
        if not callable(closure):
            return None

        @functools.wraps(closure)
        def run_closure(*of_closure, **named_of_closure):
            self._listener(says.CLOSURE_BEGINS)
            try:
                return closure(*of_closure, **named_of_closure)
            finally:
                self._listener(says.CLOSURE_ENDS)
                before(which)

        hidden(run_closure)
        if "closure" in named:
            return arguments, dict(named, closure=run_closure)
        return (arguments[0], run_closure) + tuple(arguments[2:]), named

    def watch_backward(self, before):
        """Calls `before` each backward pass that adds to gradients, with what it begins from."""
        variable = self._torch.autograd.Variable
        engine = type(variable._execution_engine)

        class Engine(engine):
            """Autograd's engine, as frameworks call it, some of them past `torch.autograd.backward`."""

            def run_backward(its, *arguments, **named):
                # Within another one, some of a graph is built and run again.
                is_outermost, self._backward = not self._backward, self._backward + 1
                self._enter_backward()
                if is_outermost and arguments and named.get("accumulate_grad"):
                    before(arguments[0])
                try:
                    return engine.run_backward(its, *arguments, **named)
                finally:
                    self._backward -= 1
                    self._listener(says.BACKWARD_ENDS)

        hidden(Engine.run_backward)
        variable._execution_engine = Engine()

    def _enter_backward(self):
        self._end_evaluation()
        if not self._checkpoint_is_watched:
            self._phases.run(self._watch_recomputation)
        if self._recomputations:
            # What was recomputed is complete; its own backward pass begins.
            self._leave_recomputation(self._recomputations[-1])
        self._listener(says.BACKWARD_BEGINS)

    def _watch_recomputation(self):
        """Forward work that is repeated in the backward pass is `torch.utils.checkpoint`'s."""
        checkpoint = sys.modules.get("torch.utils.checkpoint")
        if checkpoint is None:
            return
        self._checkpoint_is_watched = True
        try:
            frame, function = checkpoint._CheckpointFrame, checkpoint.CheckpointFunction
            frame_init, backward = frame.__init__, function.backward
        except AttributeError:
            # Another version has it elsewhere: then recomputed activations count as scratch.
            return

        @functools.wraps(frame_init)
        def init(its, recompute, *arguments, **named):
            frame_init(its, self._around_recomputation(recompute), *arguments, **named)

        frame.__init__ = init
        function.backward = staticmethod(self._around_recomputation(backward))

    def _around_recomputation(self, original):
        @functools.wraps(original)
        def recompute(*arguments, **named):
            this = object()
            self._recomputations.append(this)
            self._listener(says.RECOMPUTATION_BEGINS)
            try:
                return original(*arguments, **named)
            finally:
                self._leave_recomputation(this)

        return recompute

    def _leave_recomputation(self, this):
        if this in self._recomputations:
            self._recomputations.remove(this)
            self._listener(says.RECOMPUTATION_ENDS)

    def watch_evaluation(self, model, is_trained):
        """A trained model that is put into evaluation mode between two steps is evaluated until it is back."""
        where = _defines(type(model), "eval")
        if where in self._evaluated:
            return
        self._evaluated.append(where)
        evaluate = where.eval

        @functools.wraps(evaluate)
        def evaluate_from_now_on(its):
            if self._steps and self._leave_evaluation is None:
                self._phases.run(self._enter_evaluation, its, is_trained)
            return evaluate(its)

        where.eval = hidden(evaluate_from_now_on)

    def _enter_evaluation(self, model, is_trained):
        if not is_trained(model):
            return
        self._listener(says.EVALUATION_BEGINS)
        where = _defines(type(model), "train")
        train = where.train

        @functools.wraps(train)
        def train_from_now_on(its, mode=True):
            # Every module below passes here too: this is there only as long as something is evaluated.
            if mode and its is model:
                self._end_evaluation()
            return train(its, mode)

        def leave():
            where.train = train

        where.train, self._leave_evaluation = hidden(train_from_now_on), leave

    def _end_evaluation(self):
        if self._leave_evaluation is not None:
            self._leave_evaluation()
            self._leave_evaluation = None
            self._listener(says.EVALUATION_ENDS)

    def watch_saving(self, module, path):
        """A call of this function of a module, or of a class of it, saves a checkpoint if it comes after the first step."""
        *outer, name = path.split(".")
        where = functools.reduce(lambda one, part: getattr(one, part, None), outer, module)
        original = getattr(where, name, None)
        # Other versions of the module may not have it.
        if original is None:
            return

        @functools.wraps(original)
        def save(*arguments, **named):
            if not self._steps:
                return original(*arguments, **named)
            self._listener(says.CHECKPOINT_BEGINS)
            try:
                return original(*arguments, **named)
            finally:
                self._listener(says.CHECKPOINT_ENDS)

        setattr(where, name, hidden(save))


def _defines(kind, name):
    """The class that a method of another class is from."""
    return next(one for one in kind.__mro__ if name in vars(one))
