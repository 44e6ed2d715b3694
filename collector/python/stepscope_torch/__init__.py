"""Says to the injected library what PyTorch does: passes of the training, what its memory is for, what it trains, and which
groups of ranks there are.

Nothing of the program changes, and nothing here ends it. Each of these is a source of knowledge of its own: whatever goes
wrong in one ends that one, and the recording says so. Nothing is printed.

| file | idea |
|---|---|
| `source.py` | something that may fail on its own |
| `library.py` | the injected library, as Python calls it |
| `passes.py` | steps and phases: which pass of the training goes on |
| `memory.py`, `storages.py` | the history of memory; which blocks are parameters, gradients, optimizer state |
| `loading.py` | when the program waits for its next batch |
| `tokens.py` | how many tokens a backward pass is over |
| `losses.py` | whether the loss is a number |
| `model.py` | what is trained |
| `sharding.py` | what replicas share of it |
| `groups.py` | which groups of ranks there are |
| `failures.py` | what the program raises and nobody catches |
| `stacks.py` | where threads are when somebody asks, since nothing goes on |
| `operators.py` | which operator, module and line launches what, in steps that are looked at |
| `profilers.py` | room for the program's own profiler |
| `hidden.py` | what `torch.compile` is to leave alone |
"""

import atexit
import sys
from time import perf_counter_ns

from . import failures, groups, hidden, loading, losses, memory, model, operators, passes, profilers, sharding, source
from . import stacks, storages, tokens
from . import library as says

OLDEST_TORCH = (2, 1)
# Functions that save checkpoints, by the module that has each. Those of frameworks begin with copies to the host.
SAVING = [
    ("torch", "save"),
    ("torch.distributed.checkpoint", "save"),
    ("torch.distributed.checkpoint", "async_save"),
    ("safetensors.torch", "save_file"),
    ("transformers.modeling_utils", "PreTrainedModel.save_pretrained"),
    ("accelerate.accelerator", "Accelerator.save_state"),
    ("lightning.pytorch.trainer.trainer", "Trainer.save_checkpoint"),
    ("pytorch_lightning.trainer.trainer", "Trainer.save_checkpoint"),
    ("deepspeed.runtime.engine", "DeepSpeedEngine.save_checkpoint"),
    ("megatron.core.dist_checkpointing", "save"),
    ("megatron.training.checkpointing", "save_checkpoint"),
]
# What the program is like is looked at after so many steps of optimizers, or backward passes where there are none: wrappers
# and groups come late.
LOOKS = (1, 2, 10)


def begin(torch, wait_for):
    """To be called when PyTorch is imported, with what calls us when another module is."""
    if torch.version.cuda is None:
        return
    library = says.Library()
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < OLDEST_TORCH:
        why = "PyTorch %s is older than %d.%d" % ((torch.__version__,) + OLDEST_TORCH)
        return torch.cuda._lazy_call(lambda: library.refuse(why))
    watch = Watch(torch, library, wait_for)
    room = source.Source(lambda why: library.failed("profiler", why))
    room.run(profilers.watch, torch, library, watch.end_operators)
    torch.cuda._lazy_call(watch.cuda_begins)
    ours = [sys.modules[__name__], failures, groups, hidden, loading, losses, memory, model, operators, passes, profilers]
    ours += [says, sharding, source, stacks, storages, tokens]
    wait_for("torch._dynamo.eval_frame", lambda eval_frame: hidden.hide(ours, eval_frame))
    if torch._C._cuda_getAllocatorBackend() == "native":
        library.expect()


class Watch:
    """Watches the training of this process."""

    def __init__(self, torch, library, wait_for):
        self._torch = torch
        self._library = library
        self._wait_for = wait_for
        self._storages = storages.Storages(torch)
        self._memory = memory.Memory(torch, library, self._storages)
        self._tokens = tokens.Tokens(torch)
        self._losses = losses.Losses(torch, library.lost)
        self._groups = groups.Groups(torch)
        names = ("steps", "phases", "checkpoints", "tokens", "losses", "model", "groups", "operators")
        names += ("failures", "stacks")
        self._sources = {name: source.Source(lambda why, name=name: library.failed(name, why)) for name in names}
        self._sources["memory"] = source.Source(self._memory.give_up)
        self._sharding = sharding.Sharding(self._sources["model"])
        self._operators = self._sources["operators"].run(operators.Operators, torch, library, self._storages.roots)
        self._passes = passes.Passes(torch, self._sources["phases"], self._mark)
        self._steps = 0
        self._backwards = 0
        self._unsaid_ns = 0
        self._wishes = 0
        # What is built before CUDA begins is trained after it.
        modules = torch.nn.modules.module
        modules.register_module_parameter_registration_hook(self._module_has)
        modules.register_module_buffer_registration_hook(self._module_has)
        modules.register_module_module_registration_hook(self._module_is_within)

    def _for(self, name, action, *arguments):
        """Does something for a source, and counts how long it takes."""
        began = perf_counter_ns()
        result = self._sources[name].run(action, *arguments)
        self._unsaid_ns += perf_counter_ns() - began
        return result

    def cuda_begins(self):
        """To be called when CUDA begins in this process."""
        wishes = self._for("memory", self._library.begin, self._torch.__version__) or 0
        self._for("steps", self._passes.watch_optimizers, self._before_step, self._after_step, self._follow)
        self._for("phases", self._passes.watch_backward, self._before_backward)
        self._for("checkpoints", self._watch_saving)
        self._for("tokens", self._when_imported, "torch.utils.data.dataloader", self._watch_loader)
        self._for("model", self._when_imported, sharding.DEEPSPEED, self._sharding.watch_deepspeed)
        self._for("memory", self._memory.watch_history)
        self._for("failures", failures.watch, self._library.raised)
        self._for("stacks", stacks.watch, self._torch, self._library)
        self._follow(wishes)
        atexit.register(self._end)

    def _watch_loader(self, dataloader):
        loading.watch(dataloader, self._mark, self._tokens.loaded)

    def _watch_saving(self):
        for module, name in SAVING:
            self._when_imported(module, lambda module, name=name: self._passes.watch_saving(module, name))

    def _when_imported(self, name, action):
        """Does something with a module, now or when the program imports it."""
        module = sys.modules.get(name)
        if module is not None:
            action(module)
        else:
            self._wait_for(name, action)

    def _module_has(self, module, name, value):
        self._sources["memory"].run(self._storages.add_module, module)

    def _module_is_within(self, module, name, submodule):
        self._sources["memory"].run(self._storages.add_parent, module, submodule)

    def _mark(self, event, optimizer=None):
        """Says that something begins or ends; tells what is wanted."""
        spent, self._unsaid_ns = self._unsaid_ns, 0
        which = id(optimizer) if optimizer is not None else 0
        self._wishes = self._for("steps", self._library.mark, event, which, spent) or 0
        return self._wishes

    def _wants_details(self):
        """Whether anything but steps and phases is recorded now. What goes before all else is found out all the same: it is told
        once, to whoever asks later."""
        return self._steps <= LOOKS[-1] or self._wishes & says.DETAILS

    def _before_step(self, optimizer):
        self._for("memory", self._memory.before_step, optimizer)

    def _after_step(self):
        self._for("memory", self._memory.after_step)
        self._steps += 1
        self._look_around(self._steps)

    def _look_around(self, time):
        if time in LOOKS:
            self._for("model", self._look_at_model)
        if self._wants_details():
            self._for("groups", self._look_at_groups)

    def _before_backward(self, roots):
        if self._operators is not None:
            self._for("operators", self._operators.before_backward)
        self._backwards += 1
        if not self._steps:
            self._look_around(self._backwards)
            if self._backwards in LOOKS and self._for("steps", self._passes.are_optimizers_silent):
                why = "PyTorch %s takes hooks off optimizers when it compiles" % self._torch.__version__
                self._library.failed("steps", why)
        if self._wishes & says.LOSS:
            self._for("losses", self._losses.follow, roots)
        if not self._wants_details():
            return
        count = self._for("tokens", self._tokens.of, roots)
        if count:
            self._for("tokens", self._library.tokens, float(count))

    def _look_at_model(self):
        roots = self._storages.roots()
        if not roots:
            return
        for module in (module for root in roots for module in model.unwrapped(root)):
            self._sources["phases"].run(self._passes.watch_evaluation, module, _is_trained)
        configuration = model.configuration(module for root in roots for module in root.modules())
        known = {"sequence_length": self._tokens.sequence_length, "zero": self._sharding.zero}
        if configuration and self._library.model(dict(known, configuration=configuration)):
            return
        counted = model.Sizes(self._torch).counted(roots)
        if counted:
            self._library.model(dict(known, counted=counted))

    def _look_at_groups(self):
        if self._groups.are_new():
            self._library.groups(self._groups.description())

    def _follow(self, wishes):
        self._for("memory", self._memory.follow, wishes)
        if self._operators is not None:
            self._for("operators", self._operators.follow, wishes & says.OPERATORS)

    def end_operators(self):
        """To be called before the program's own profiler begins: there is one at a time."""
        if self._operators is not None:
            self._for("operators", self._operators.end)

    def _end(self):
        """Says what memory there is in the end, and ends."""
        self._for("memory", self._memory.end)
        self._for("losses", self._losses.look)
        self.end_operators()
        for one in self._sources.values():
            one.is_on = False
        try:
            self._library.end()
        except Exception:
            pass


def _is_trained(module):
    return any(tensor.requires_grad for tensor in module.parameters())
