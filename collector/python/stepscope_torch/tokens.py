"""How many tokens a backward pass is over, by the graph that autograd has built for it.

The graph says the shapes of what was computed: an embedding's result has a row for each token, and so has what goes into the
loss. Nothing is hooked into the model for this, so `torch.compile` has nothing to notice. Where a compiled graph hides both,
what comes out of a `DataLoader` tells.
"""

from math import prod
from time import perf_counter_ns

# The loss is within so many nodes of where a backward pass begins.
_NEAR = 64
# No more nodes than this are looked at.
_MOST = 200_000
# After looking at a whole graph, so many times as long passes before it is done again.
_REST = 200
# Whole graphs that are looked at in any case: the first ones of a run may differ from the others.
_FIRST = 32
# So many ways are known at a time: parts of a model may have a graph each.
_MOST_WAYS = 4


class Tokens:
    """Counts the tokens of backward passes, and knows how long sequences are."""

    def __init__(self, torch):
        self._torch = torch
        self._looks = 0
        self._next_look = 0
        # The ways from where backward passes began to what was embedded.
        self._ways = []
        self._loaded = None
        self.sequence_length = None

    def of(self, roots):
        """The tokens of a backward pass that begins from these tensors; nothing, if it has none or it cannot be told."""
        nodes = [root.grad_fn for root in _listed(roots) if getattr(root, "grad_fn", None) is not None]
        if nodes and not hasattr(nodes[0], "_input_metadata"):
            # Graphs of older versions, 2.4 among them, say no shapes.
            return self._of_loaded()
        shape = self._embedded(nodes)
        if shape is not None:
            if len(shape) == 3:
                self.sequence_length = shape[1]
            return prod(shape[:-1])
        rows, length = _rows(nodes)
        self.sequence_length = length or self.sequence_length
        return rows if rows or self._ways else self._of_loaded()

    def _of_loaded(self):
        """The tokens of the batch that was loaded last, if one was."""
        if self._loaded is None:
            return None
        tokens, self.sequence_length = self._loaded
        return tokens

    def _embedded(self, nodes):
        """The shape of what was embedded: by a way that is known, or else by looking for one, at times."""
        for way in self._ways:
            shape = _followed(nodes, way)
            if shape is not None:
                return shape
        now = perf_counter_ns()
        if self._looks >= _FIRST and now < self._next_look:
            return None
        self._looks += 1
        way = _way(nodes)
        self._next_look = perf_counter_ns() + _REST * (perf_counter_ns() - now)
        if way is None:
            return None
        self._ways = [way] + self._ways[: _MOST_WAYS - 1]
        return _followed(nodes, way)

    def loaded(self, batch):
        """Looks at a batch that came out of a `DataLoader`."""
        try:
            self._look(batch)
        except Exception:
            # It is a batch of something else.
            self._loaded = None

    def _look(self, batch):
        """Token numbers are whole, in rows of a sequence each."""
        values = batch.values() if isinstance(batch, dict) else _listed(batch)
        for value in values:
            if isinstance(value, self._torch.Tensor) and value.ndim == 2 and not value.is_floating_point():
                self._loaded = value.numel(), value.shape[1]
                return


def _listed(roots):
    return roots if isinstance(roots, (list, tuple)) else [roots]


def _shape(node):
    """The shape of a node's first result."""
    metadata = node._input_metadata
    return tuple(metadata[0].shape) if metadata else ()


def _rows(nodes):
    """How many rows go into the loss, and how long a sequence is, if what came before it says so."""
    rows = width = None
    for node, _ in _walk(nodes, _NEAR):
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


def _way(nodes):
    """The way to what was embedded, most of it where several things were: positions are fewer, or as many."""
    most, best, came_from = 0, None, {}
    for node, origin in _walk(nodes, _MOST):
        came_from[node] = origin
        if node.name() == "EmbeddingBackward0" and prod(_shape(node)[:-1]) > most:
            most, best = prod(_shape(node)[:-1]), node
    if best is None:
        return None
    way = []
    while best is not None:
        best, place = came_from[best]
        way.append(place)
    return way[::-1]


def _followed(nodes, way):
    """The shape of what was embedded at the end of a way; nothing, if it leads elsewhere."""
    if way[0] >= len(nodes):
        return None
    node = nodes[way[0]]
    for place in way[1:]:
        following = node.next_functions
        if place >= len(following) or following[place][0] is None:
            return None
        node = following[place][0]
    return _shape(node) if node.name() == "EmbeddingBackward0" else None


def _walk(nodes, most):
    """Nodes of a graph, the nearest first, with what each follows and its place there."""
    waiting = [(node, (None, place)) for place, node in enumerate(nodes)]
    seen = set(nodes)
    for node, origin in waiting:
        yield node, origin
        for place, (following, _) in enumerate(node.next_functions):
            if following is not None and following not in seen and len(waiting) < most:
                seen.add(following)
                waiting.append((following, (node, place)))
