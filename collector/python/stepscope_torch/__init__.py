"""Says to the injected library what PyTorch does: passes of the training, and what its memory is for.

Nothing of the program changes, and nothing here ends it: whatever goes wrong ends this module, and the recording says so.
Nothing is printed. The library reads PyTorch's history of its memory itself, without Python.
"""

import atexit
import functools
import importlib
import inspect
import sys
from time import perf_counter_ns

from . import library as says
from . import profilers, storages
from .storages import Storages

# So many events of its allocator PyTorch is to keep. The library reads them before they are overwritten.
HISTORY_EVENTS = 65536
# After looking at all tensors, so many times as long passes before it is done again.
REST = 200
OLDEST_TORCH = (2, 1)
THEIR_OWN = "the program keeps a history of its memory itself"


def begin(torch, wait_for):
    """To be called when PyTorch is imported, with what calls us when another module is."""
    if torch.version.cuda is None:
        return
    library = says.Library()
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < OLDEST_TORCH:
        why = "PyTorch %s is older than %d.%d" % ((torch.__version__,) + OLDEST_TORCH)
        return torch.cuda._lazy_call(lambda: library.refuse(why))
    profilers.watch(torch, library)
    watch = Watch(torch, library)
    torch.cuda._lazy_call(watch.cuda_begins)
    wait_for("torch._dynamo.eval_frame", hide_from_compiler)
    if torch._C._cuda_getAllocatorBackend() == "native":
        library.expect()


class Watch:
    """Watches the training of this process."""

    def __init__(self, torch, library):
        self._torch = torch
        self._library = library
        self._storages = Storages(torch)
        self._is_on = True
        self._history = False
        self._observes = False
        self._look_took = 0
        self._next_look = 0
        self._unsaid_ns = 0
        self._checkpoint_is_watched = False
        self._recomputations = []
        self._record_history = torch.cuda.memory._record_memory_history
        # What is built before CUDA begins is trained after it.
        modules = torch.nn.modules.module
        modules.register_module_parameter_registration_hook(self._module_has)
        modules.register_module_buffer_registration_hook(self._module_has)
        modules.register_module_module_registration_hook(self._module_wraps)

    def cuda_begins(self):
        """To be called when CUDA begins in this process."""
        try:
            wishes = self._library.begin(self._torch.__version__)
            self._watch_passes()
            self._follow(wishes)
            atexit.register(self._end)
        except Exception as error:
            self._give_up(error)

    def _give_up(self, why):
        """Ends all of this. The hooks stay, and do nothing."""
        self._is_on = False
        try:
            self._library.refuse(why)
            if self._history:
                self._history = False
                self._record_history(None)
        except Exception:
            pass

    def _watch_passes(self):
        torch = self._torch
        # The name `torch.optim.optimizer` is taken away there once it is imported.
        optimizer = importlib.import_module("torch.optim.optimizer")
        optimizer.register_optimizer_step_pre_hook(_hidden(lambda *arguments: self._optimizer_begins(*arguments)))
        optimizer.register_optimizer_step_post_hook(_hidden(lambda *arguments: self._optimizer_ends(*arguments)))
        # Both `backward` and `grad` come by here, or `backward` alone in old versions.
        name = "_engine_run_backward" if hasattr(torch.autograd, "_engine_run_backward") else "backward"
        setattr(torch.autograd, name, self._around_backward(getattr(torch.autograd, name)))
        torch.cuda.memory._record_memory_history = self._instead_of_record_history()

    def _module_has(self, module, name, value):
        try:
            if self._is_on:
                self._storages.add_module(module)
        except Exception as error:
            self._give_up(error)

    def _module_wraps(self, module, name, submodule):
        try:
            if self._is_on and type(module).__name__ == "DistributedDataParallel":
                self._storages.add_replica(module)
        except Exception as error:
            self._give_up(error)

    def _around_backward(self, original):
        @functools.wraps(original)
        def run_backward(*arguments, **named):
            self._enter_backward()
            try:
                return original(*arguments, **named)
            finally:
                self._mark(says.BACKWARD_ENDS)

        return _hidden(run_backward)

    def _enter_backward(self):
        if not self._checkpoint_is_watched:
            self._watch_checkpoint()
        if self._recomputations:
            # What was recomputed is complete; its own backward pass begins.
            self._leave_recomputation(self._recomputations[-1])
        self._mark(says.BACKWARD_BEGINS)

    def _watch_checkpoint(self):
        """Forward work that is repeated in the backward pass is `torch.utils.checkpoint`'s."""
        checkpoint = sys.modules.get("torch.utils.checkpoint")
        if checkpoint is None or not self._is_on:
            return
        self._checkpoint_is_watched = True
        try:
            frame, function = checkpoint._CheckpointFrame, checkpoint.CheckpointFunction
            frame_init, backward = frame.__init__, function.backward

            @functools.wraps(frame_init)
            def init(its, recompute, *arguments, **named):
                frame_init(its, self._around_recomputation(recompute), *arguments, **named)

            frame.__init__ = init
            function.backward = staticmethod(self._around_recomputation(backward))
        except AttributeError:
            # Another version has it elsewhere: then recomputed activations count as scratch.
            pass

    def _around_recomputation(self, original):
        @functools.wraps(original)
        def recompute(*arguments, **named):
            this = self._enter_recomputation()
            try:
                return original(*arguments, **named)
            finally:
                self._leave_recomputation(this)

        return recompute

    def _enter_recomputation(self):
        this = object()
        self._recomputations.append(this)
        self._mark(says.RECOMPUTATION_BEGINS)
        return this

    def _leave_recomputation(self, this):
        if this in self._recomputations:
            self._recomputations.remove(this)
            self._mark(says.RECOMPUTATION_ENDS)

    def _mark(self, event, optimizer=0):
        """Says that something begins or ends; tells what is wanted."""
        if not self._is_on:
            return 0
        try:
            spent, self._unsaid_ns = self._unsaid_ns, 0
            began = perf_counter_ns()
            wishes = self._library.mark(event, optimizer, spent)
            self._unsaid_ns += perf_counter_ns() - began
            return wishes
        except Exception as error:
            self._give_up(error)
            return 0

    def _optimizer_begins(self, optimizer, arguments, named):
        if not self._is_on:
            return
        self._mark(says.OPTIMIZER_BEGINS, id(optimizer))
        began = perf_counter_ns()
        try:
            self._storages.add_optimizer(optimizer)
            self._observes = self._history and began >= self._next_look
            if self._observes:
                self._library.blocks(says.GRADIENTS, self._storages.gradients())
        except Exception as error:
            self._give_up(error)
        self._look_took = perf_counter_ns() - began
        self._unsaid_ns += self._look_took

    def _optimizer_ends(self, optimizer, arguments, named):
        if not self._is_on:
            return
        began = perf_counter_ns()
        try:
            if self._observes:
                self._observes = False
                self._look()
                took = self._look_took + perf_counter_ns() - began
                self._next_look = perf_counter_ns() + REST * took
        except Exception as error:
            self._give_up(error)
        self._unsaid_ns += perf_counter_ns() - began
        self._follow(self._mark(says.OPTIMIZER_ENDS, id(optimizer)))

    def _look(self):
        """Says where parameters and optimizer state are."""
        parameters, state = self._storages.parameters_and_state()
        self._library.blocks(says.PARAMETERS, parameters)
        self._library.blocks(says.OPTIMIZER_STATE, state)
        self._library.buffers(self._storages.bucket_sizes())
        device = self._storages.device()
        if device is not None:
            self._library.device(device)

    def _follow(self, wishes):
        """Has the history kept or not, as is wanted. To be called where no pass goes on."""
        wanted = bool(wishes & says.HISTORY)
        if wanted == self._history or not self._is_on:
            return
        began = perf_counter_ns()
        try:
            if wanted:
                self._keep_history()
                self._library.history(HISTORY_EVENTS)
                self._next_look = 0
            else:
                self._library.history(0)
                self._record_history(None)
            self._history = wanted
        except Exception as error:
            # Passes and steps are there all the same.
            self._library.refuse(error)
        self._unsaid_ns += perf_counter_ns() - began

    def _keep_history(self):
        if self._torch._C._cuda_isHistoryEnabled():
            raise RuntimeError(THEIR_OWN)
        known = inspect.signature(self._record_history).parameters
        arguments = {"context": None, "stacks": "python", "max_entries": HISTORY_EVENTS}
        # That a block is to be given back is of no interest, and a third of all events.
        wanted = {"skip_actions": ["free_requested"], "clear_history": True}
        arguments.update((name, value) for name, value in wanted.items() if name in known)
        self._record_history("all", **arguments)

    def _instead_of_record_history(self):
        """What the program calls to have a history of its own: it gets it, and ours ends."""
        original = self._record_history

        @functools.wraps(original)
        def record_memory_history(*arguments, **named):
            if self._is_on:
                self._leave_history()
            return original(*arguments, **named)

        return record_memory_history

    def _leave_history(self):
        try:
            if self._history:
                self._library.history(0)
            self._history = False
            self._library.refuse(THEIR_OWN)
        except Exception as error:
            self._give_up(error)

    def _end(self):
        """Says what memory there is in the end, and ends."""
        if not self._is_on:
            return
        try:
            if self._history:
                self._look()
                self._library.blocks(says.GRADIENTS, self._storages.gradients())
            self._is_on = False
            self._library.end()
        except Exception as error:
            self._give_up(error)


def hide_from_compiler(eval_frame):
    """Has `torch.compile` run our code as it is: it would try to compile whatever runs beside a graph."""
    skip_code = getattr(eval_frame, "skip_code", None)
    if skip_code is not None:
        for code in _codes():
            skip_code(code)


def _codes():
    """All code of this package."""
    found = []
    for module in (sys.modules[__name__], says, storages):
        for thing in list(vars(module).values()):
            functions = vars(thing).values() if inspect.isclass(thing) else [thing]
            found += [function.__code__ for function in functions if inspect.isfunction(function)]
    for code in found:
        yield code
        found += [constant for constant in code.co_consts if inspect.iscode(constant)]


def _hidden(function):
    """A function that `torch.compile` takes into no graph."""
    function._torchdynamo_disable = True
    return function
