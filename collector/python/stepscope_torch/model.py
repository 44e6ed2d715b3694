"""What is trained: a configuration where the program has one of a kind that is known, and else what its modules add up to."""

import sys
from math import prod

# Of these a configuration says more than sizes do.
_CONFIGURED = "transformers.modeling_utils", "PreTrainedModel"
_MEGATRON = "megatron.core.transformer.transformer_config", "TransformerConfig"
_FSDP = "torch.distributed.fsdp", "FullyShardedDataParallel"


def _imported(module, name):
    """A class of a module that the program has imported; nothing, if it has not."""
    return getattr(sys.modules.get(module), name, None)


def _is(thing, where):
    kind = _imported(*where)
    return isinstance(kind, type) and isinstance(thing, kind)


def configuration(modules):
    """The configuration of a model that has one, in Hugging Face's words or ours."""
    for module in modules:
        if _is(module, _CONFIGURED):
            return module.config.to_dict()
        config = getattr(module, "config", None)
        if _is(config, _MEGATRON) and getattr(module, "vocab_size", None):
            return _of_megatron(module, config)
    return None


def _of_megatron(module, config):
    experts = config.num_moe_experts
    return {
        "name": "%s, %d layers" % (type(module).__name__, config.num_layers),
        "layers": config.num_layers,
        "hidden": config.hidden_size,
        "heads": config.num_attention_heads,
        "kv_heads": config.num_query_groups or config.num_attention_heads,
        "head_dim": config.kv_channels or config.hidden_size // config.num_attention_heads,
        "ffn": (experts and config.moe_ffn_hidden_size) or config.ffn_hidden_size,
        "feed_forward": "gated" if config.gated_linear_unit else "plain",
        "vocabulary": module.vocab_size,
        "tied_embeddings": bool(getattr(module, "share_embeddings_and_output_weights", False)),
        "norm": "rms" if config.normalization == "RMSNorm" else "layer",
        "experts": {"count": experts, "top_k": config.moe_router_topk} if experts else None,
    }


class Sizes:
    """Adds up the parameters of modules."""

    def __init__(self, torch):
        self._torch = torch

    def counted(self, roots):
        """What the modules below some add up to; nothing, if it cannot be told.

        A parameter with two dimensions is a matrix that every token goes through, unless it is an embedding. The output may
        be the embedding again, which shows in that no matrix has a side as long as the vocabulary.
        """
        parameters = [parameter for root in roots for parameter in self._parameters(root)]
        embedded = {key for owner, key, _ in parameters if isinstance(owner, self._torch.nn.Embedding)}
        shapes = {key: shape for _, key, shape in parameters}
        if any(len(shape) == 3 for shape in shapes.values()):
            # Experts: which of them a token goes through is not to be seen.
            return None
        tables = [shapes[key] for key in embedded]
        matrices = [shape for key, shape in shapes.items() if len(shape) == 2 and key not in embedded]
        vocabulary, width = max(tables, default=(None, None))
        return {
            "name": self._name(roots[0]),
            "layers": sum(self._layers(root) for root in roots),
            "width": width,
            "vocabulary": vocabulary,
            "parameters": sum(prod(shape) for shape in shapes.values()),
            "embeddings": sum(prod(table) for table in tables),
            "matrices": sum(prod(shape) for shape in matrices),
            "longest_side": max((side for shape in matrices for side in shape), default=0),
        }

    def _name(self, root):
        """The class of what is within wrappers, and is no mere list."""
        containers = (self._torch.nn.ModuleList, self._torch.nn.ModuleDict, self._torch.nn.Sequential)
        named = [module for module in unwrapped(root) if not isinstance(module, containers)]
        return type(named[-1] if named else root).__name__

    def _parameters(self, root):
        """The parameters below a module: whose each is, what tells it from others, and its whole shape, however sharded."""
        flat = {}
        for module in root.modules():
            if _is(module, _FSDP) and getattr(module, "_handle", None) is not None:
                whole = module._handle.flat_param
                flat[id(whole)] = True
                flat.update((id(part), True) for part in whole._params or ())
                for place, (info, shape) in enumerate(zip(whole._param_infos, whole._shapes)):
                    yield info.module, (id(whole), place), tuple(shape)
        for module in root.modules():
            for tensor in list(module._parameters.values()):
                if tensor is not None and id(tensor) not in flat:
                    # DeepSpeed's own attribute, where it has sharded a parameter.
                    yield module, id(tensor), tuple(getattr(tensor, "ds_shape", None) or tensor.shape)

    def _layers(self, root):
        """How many layers there are: modules of one class in a row, each with parameters."""
        row = (self._torch.nn.ModuleList, self._torch.nn.Sequential, self._torch.nn.ModuleDict)
        waiting, layers = [root], 0
        for module in waiting:
            children = list(module.children())
            are_alike = all(type(child) is type(children[0]) for child in children)
            if children and isinstance(module, row) and are_alike and any(self._parameters(children[0])):
                layers += len(children)
            else:
                waiting += children
        return layers


def unwrapped(module):
    """A module, and what is within it as long as that is all it has: wrappers, and what they wrap."""
    yield module
    children = list(module.children())
    if len(children) == 1 and all(tensor is None for tensor in module._parameters.values()):
        yield from unwrapped(children[0])
