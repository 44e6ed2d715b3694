"""Which blocks of memory are parameters, gradients, optimizer state."""

import sys
import weakref

# State of optimizers is nested: a dict for each parameter, with lists in it at times.
_DEEPEST = 4


class Storages:
    """Remembers modules and optimizers, weakly, and finds their memory."""

    def __init__(self, torch):
        self._torch = torch
        self._modules = {}
        self._parents = {}
        self._children = {}
        self._optimizers = {}

    def add_module(self, module):
        """Remembers a module that has parameters or buffers."""
        _remember(self._modules, module)

    def add_parent(self, module, submodule):
        """Remembers that a module is within another."""
        if submodule is not None:
            _remember(self._parents, module)
            _remember(self._children, submodule)

    def roots(self):
        """The modules that are trained and in no other: those of which optimizers have parameters, or else the largest."""
        alone = [module for key, module in _pairs(self._modules) + _pairs(self._parents) if key not in self._children]
        alone = list({id(module): module for module in alone}.values())
        optimized = {id(tensor) for tensor in self._optimized()}
        trained = [module for module in alone if any(id(tensor) in optimized for tensor in module.parameters())]
        if trained:
            return trained
        sizes = [(_trained_size(module), place) for place, module in enumerate(alone)]
        size, place = max(sizes, default=(0, 0))
        return [alone[place]] if size else []

    def add_optimizer(self, optimizer):
        """Remembers an optimizer."""
        _remember(self._optimizers, optimizer)

    def device(self):
        """The number of the GPU that parameters are on."""
        for tensor in self._optimized():
            if tensor.is_cuda:
                return tensor.device.index
        return None

    def parameters_and_state(self):
        """Where parameters and buffers are, and where the state of optimizers is.

        Where optimizers have copies of the parameters, in another precision, those are state of theirs. So are buffers of
        the modules that a compiler makes of an optimizer.
        """
        parameters, buffers, trained = set(), set(), []
        for module in _alive(self._modules):
            for tensor in list(module._parameters.values()):
                _add(tensor, parameters)
                if tensor is not None and tensor.requires_grad:
                    trained.append(tensor)
            for tensor in list(module._buffers.values()):
                _add(tensor, buffers)
        optimized, state = set(), set()
        for tensor in self._optimized():
            _add(tensor, optimized)
        for optimizer in _alive(self._optimizers):
            _add_nested(list(optimizer.state.values()), state, _DEEPEST)
        half = (self._torch.bfloat16, self._torch.float16)
        left = set()
        for tensor in trained:
            if tensor.dtype in half:
                _add(tensor, left)
        if left - optimized:
            state |= optimized - parameters - buffers
        else:
            parameters |= optimized
        state -= parameters
        return parameters | (buffers - state), state

    def gradients(self):
        """Where gradients are."""
        found, seen = set(), set()
        for tensor in self._every_parameter():
            if id(tensor) not in seen:
                seen.add(id(tensor))
                _add(tensor.grad, found)
                _add(getattr(tensor, "main_grad", None), found)
        return found

    def bucket_sizes(self):
        """How large the buffers are in which gradients are averaged."""
        sizes = set()
        parallel = sys.modules.get("torch.nn.parallel.distributed")
        kind = getattr(parallel, "DistributedDataParallel", ())
        for replica in _alive(self._parents):
            if not isinstance(replica, kind):
                continue
            data = replica._get_ddp_logging_data()
            for key in ("bucket_sizes", "rebuilt_bucket_sizes"):
                sizes.update(int(size) for size in str(data.get(key) or "").split(",") if size.strip().isdigit())
        return sizes

    def _optimized(self):
        for optimizer in _alive(self._optimizers):
            for group in optimizer.param_groups:
                for tensor in group["params"]:
                    yield tensor

    def _every_parameter(self):
        for module in _alive(self._modules):
            for tensor in list(module._parameters.values()):
                if tensor is not None:
                    yield tensor
        for tensor in self._optimized():
            yield tensor


def _remember(things, thing):
    key = id(thing)
    if key not in things:
        things[key] = weakref.ref(thing, lambda _: things.pop(key, None))


def _alive(things):
    return [thing for _, thing in _pairs(things)]


def _pairs(things):
    found = [(key, reference()) for key, reference in list(things.items())]
    return [(key, thing) for key, thing in found if thing is not None]


def _trained_size(module):
    return sum(tensor.numel() for tensor in module.parameters() if tensor.requires_grad)


def _add(tensor, addresses):
    """Adds the address of a tensor's memory. Some tensors are made of others, of a shard perhaps."""
    if tensor is None:
        return
    parts = getattr(tensor, "__tensor_flatten__", None)
    if parts is not None:
        for name in parts()[0]:
            _add(getattr(tensor, name, None), addresses)
    elif tensor.is_cuda:
        address = tensor.untyped_storage().data_ptr()
        if address:
            addresses.add(address)


def _add_nested(value, addresses, depth):
    if hasattr(value, "untyped_storage"):
        _add(value, addresses)
    elif depth > 0 and isinstance(value, dict):
        for item in list(value.values()):
            _add_nested(item, addresses, depth - 1)
    elif depth > 0 and isinstance(value, (list, tuple)):
        for item in value:
            _add_nested(item, addresses, depth - 1)
