"""Which groups of ranks the program has made, and what it calls them."""

import sys

# Of more groups than this, or larger ones, nothing is said: texts are bounded.
_MOST = 1024
_LARGEST = 4096
# Groups of this backend alone have nothing on a GPU.
_WITHOUT_GPU = "gloo"


class Groups:
    """Knows the groups of `torch.distributed`, and how state is sharded over them."""

    def __init__(self, torch):
        self._torch = torch
        self._count = 0

    def are_new(self):
        """Whether there are groups that were not there the last time."""
        world = self._world()
        count = len(world.pg_group_ranks) if world is not None else 0
        is_new, self._count = count != self._count, count
        return is_new

    def description(self):
        """The groups that this rank is in and that may use its GPU, by their members' ranks, in the order they were made."""
        world = self._world()
        if world is None:
            return None
        found = []
        for group, ranks in list(world.pg_group_ranks.items()):
            backend = world.pg_map.get(group, ("",))[0]
            if backend != _WITHOUT_GPU and len(ranks) <= _LARGEST and len(found) < _MOST:
                # In the order of their places, by their ranks in the job.
                places = sorted(ranks, key=ranks.get)
                found.append({"name": _name(group, world), "ranks": places})
        return found

    def _world(self):
        distributed = sys.modules.get("torch.distributed.distributed_c10d")
        if distributed is None or not self._torch.distributed.is_initialized():
            return None
        return distributed._world


def _name(group, world):
    """What a group is described as, if its maker has said so, or its name."""
    description = getattr(group, "group_desc", None)
    if description and description != "undefined":
        return description
    return str(world.pg_names.get(group) or "")
