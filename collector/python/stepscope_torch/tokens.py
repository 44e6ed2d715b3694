"""How many tokens a backward pass is over, by the graph that autograd has built for it.

The graph says the shapes of what was computed: an embedding's result has a row for each token, and so has what goes into the
loss. Nothing is hooked into the model for this, so `torch.compile` has nothing to notice. Where a compiled graph hides both,
what comes out of a `DataLoader` tells.
"""

import functools
from math import prod
from time import perf_counter_ns

from .hidden import hidden

# The loss is within so many nodes of where a backward pass begins.
_NEAR = 64
# No more nodes than this are looked at.
_MOST = 200_000
# After looking at a whole graph, so many times as long passes before it is done again.
_REST = 200
# Whole graphs that are looked at in any case: the first of a run may differ from the others.
_FIRST = 4


class Tokens:
    """Counts the tokens of backward passes, and knows how long sequences are."""

    def __init__(self, torch):
        self._torch = torch
        self._looks = 0
        self._next_look = 0
        # Tokens by the embedding, and rows of the loss, in the last whole graph.
        self._known = None
        self._rows_then = None
        self._loaded = None
        self.sequence_length = None

    def of(self, roots):
        """The tokens of a backward pass that begins from these tensors; nothing, if it cannot be told."""
        nodes = [root.grad_fn for root in _listed(roots) if getattr(root, "grad_fn", None) is not None]
        rows, _ = _rows(nodes)
        now = perf_counter_ns()
        if self._looks < _FIRST or now >= self._next_look:
            self._looks += 1
            self._look(nodes, rows)
            self._next_look = perf_counter_ns() + _REST * (perf_counter_ns() - now)
        if self._known is None:
            return rows or self._loaded
        if rows and self._rows_then:
            return self._known * rows / self._rows_then
        return self._known

    def _look(self, nodes, rows):
        tokens, length = _embedded(nodes)
        if tokens is None:
            _, length = _rows(nodes)
            length = length or (self._loaded_length() if not rows else None)
        self._known, self._rows_then = tokens, rows
        self.sequence_length = length or self.sequence_length

    def _loaded_length(self):
        return None if self._loaded is None else self._length_loaded

    def watch_loader(self, dataloader):
        """Looks at batches as they come out of a `DataLoader`."""
        iterator = dataloader._BaseDataLoaderIter
        original = iterator.__next__

        @functools.wraps(original)
        def following(its):
            batch = original(its)
            try:
                self._is_loaded(batch)
            except Exception:
                # It is a batch of something else.
                self._loaded = None
            return batch

        iterator.__next__ = hidden(following)

    def _is_loaded(self, batch):
        """Token numbers are whole, in rows of a sequence each."""
        values = batch.values() if isinstance(batch, dict) else _listed(batch)
        for value in values:
            if isinstance(value, self._torch.Tensor) and value.ndim == 2 and not value.is_floating_point():
                self._loaded, self._length_loaded = value.numel(), value.shape[1]
                return


def _listed(roots):
    return roots if isinstance(roots, (list, tuple)) else [roots]


def _shape(node):
    """The shape of a node's first result."""
    metadata = node._input_metadata
    return tuple(metadata[0].shape) if metadata else ()


def _walk(nodes, most):
    """Nodes of a graph, the nearest first."""
    seen, waiting = set(nodes), list(nodes)
    for node in waiting:
        yield node
        for following, _ in node.next_functions:
            if following is not None and following not in seen and len(waiting) < most:
                seen.add(following)
                waiting.append(following)


def _rows(nodes):
    """How many rows go into the loss, and how long a sequence is, if what came before it says so."""
    rows = width = None
    for node in _walk(nodes, _NEAR):
        # Nodes of autograd are C++ types, which have a name and nothing to import.
        if rows is None and node.name() == "LogSoftmaxBackward0":
            shape = _shape(node)
            if len(shape) >= 2:
                rows, width = prod(shape[:-1]), shape[-1]
        elif rows is not None:
            shape = _shape(node)
            if len(shape) == 3 and shape[-1] == width and prod(shape[:2]) == rows:
                return rows, shape[1]
    return rows, None


def _embedded(nodes):
    """How many tokens are embedded, and how long a sequence of them is. Positions are fewer, or as many."""
    most, length = None, None
    for node in _walk(nodes, _MOST):
        if node.name() == "EmbeddingBackward0":
            shape = _shape(node)
            tokens = prod(shape[:-1])
            if most is None or tokens > most:
                most, length = tokens, shape[-2] if len(shape) == 3 else None
    return most, length
