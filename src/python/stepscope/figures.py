"""What ``stepscope analyze --format json`` and ``diff --format json`` say, as types.

Times are in nanoseconds, memory in bytes, shares from 0 to 1. What is not known is None.
"""

from typing import Dict, List, Optional

from ._records import Record


class Model(Record):
    """The model that is trained: its sizes, or only what its modules add up to."""

    name: str
    layers: int
    hidden: Optional[int]
    heads: Optional[int]
    kv_heads: Optional[int]
    head_dim: Optional[int]
    ffn: Optional[int]
    feed_forward: Optional[str]
    vocabulary: Optional[int]
    tied_embeddings: Optional[bool]
    width: Optional[int]
    parameters: Optional[int]


class Layout(Record):
    """How the model is spread over ranks."""

    dp: int
    tp: int
    pp: int
    cp: int
    ep: int
    zero: Optional[int]
    schedule: Optional[str]
    chunks: Optional[int]
    micro_batch: Optional[int]
    micro_batches: Optional[int]
    sequence_length: Optional[int]
    recompute: Optional[str]
    precision: Optional[str]
    gradients: Optional[str]
    inferred: bool


class Device(Record):
    """What computes."""

    name: str
    memory_bytes: Optional[int]
    peak_flops: Optional[float]


class FailedSource(Record):
    """Something that could not be found out about a recorded program."""

    source: str
    why: str
    ranks: List[int]


class EndedEarly(Record):
    """Why the recordings of some ranks ended early."""

    why: str
    ranks: List[int]


class Paused(Record):
    """How often the GPU was not recorded because the program's own profiler ran."""

    count: int
    paused_ns: int
    ranks_without_kernels: List[int]


class Run(Record):
    """What was run."""

    name: str
    source: str
    state: str
    world_size: int
    model: Optional[Model]
    sequence_length: Optional[int]
    layout: Optional[Layout]
    axes_inferred: bool
    groups_inferred: bool
    device: Optional[Device]
    ranks_on_a_device: Optional[int]
    phases_inferred: bool
    failed_sources: List[FailedSource]
    ended_early: List[EndedEarly]
    paused: Optional[Paused]


class DataLoss(Record):
    """What of the recording is lost."""

    dropped_events: int
    unreadable_bytes: int
    unreadable_events: int


class Clock(Record):
    """How the clocks of ranks were brought together."""

    aligned_by: str
    residual_ns: Optional[int]


class Window(Record):
    """The steps that every figure is of."""

    steps: Optional[List[int]]
    warm_up: List[int]
    cut_off: List[int]
    whole: bool


class Partition(Record):
    """Where time goes: compute, exposed communication, exposed copies and idle add up to the span."""

    span_ns: int
    compute_ns: int
    communication_ns: int
    overlapped_communication_ns: int
    exposed_communication_ns: int
    copy_ns: int
    exposed_copy_ns: int
    idle_ns: int
    overlap: Optional[float]


class RankTime(Partition):
    """Where a rank's time goes."""

    rank: int
    host: Optional[str]
    kernel_count: int


class Step(Partition):
    """A step on a rank."""

    step: int
    rank: int
    start_ns: int
    duration_ns: int
    host_ns: Optional[int]
    host_data_ns: Optional[int]
    loss: Optional[float]
    tokens: Optional[float]
    tokens_per_second: Optional[float]
    mfu: Optional[float]
    hfu: Optional[float]
    includes: List[str]


class HostTime(Record):
    """What a rank's program did on the host in the counted steps."""

    rank: int
    time_ns: int
    data_ns: Optional[int]
    operators_ns: Optional[int]
    communication_ns: Optional[int]
    exposed_communication_ns: Optional[int]


class HostPhase(Record):
    """Operators of a phase on the host."""

    phase: Optional[str]
    self_ns: int


class HostOperator(Record):
    """Calls of an operator on the host."""

    operator: str
    count: int
    self_ns: int
    total_ns: int
    share: float


class Host(Record):
    """What the programs did on the host in the counted steps."""

    ranks: List[HostTime]
    phases: List[HostPhase]
    operators: List[HostOperator]


class PendingOperation(Record):
    """A collective, a send or a receive that is not over."""

    operation: str
    group: str
    group_ranks: List[int]
    sequence: int
    peer: Optional[int]
    input_sizes: List[List[int]]
    output_sizes: List[List[int]]
    types: List[str]
    asked_ns: int
    stack: List[str]


class WaitingRank(PendingOperation):
    """A rank that waits in an operation, and for whom."""

    rank: int
    waits_for: List[int]
    pending: int


class RankElsewhere(Record):
    """A rank that waits in nothing, and the last operation that was over."""

    rank: int
    last: Optional[PendingOperation]


class Hang(Record):
    """What ranks waited in when a Flight Recorder dump was written, and why that did not end."""

    cause: str
    ranks: List[int]
    operation: PendingOperation
    waiting: List[WaitingRank]
    elsewhere: List[RankElsewhere]
    without_dump: List[int]


class StepTime(Record):
    """How long a step takes."""

    first_step: int
    last_step: int
    count: int
    median_ns: int
    median_step: int
    low_ns: int
    high_ns: int
    tokens_per_second: Optional[float]
    inferred: bool


class LibraryMemory(Record):
    """What a library took from the device."""

    library: str
    bytes: int


class Ledger(Record):
    """What the device says is used at the peak, in parts that add up."""

    device_used_bytes: int
    allocated_bytes: int
    fragmentation_bytes: int
    driver_bytes: int
    context_bytes: Optional[int]
    modules_bytes: Optional[int]
    local_memory_bytes: Optional[int]
    libraries_bytes: int
    libraries: List[LibraryMemory]
    residual_bytes: int


class RankMemory(Record):
    """What fills a rank's memory, over the whole recording."""

    rank: int
    peak_bytes: int
    peak_time_ns: int
    peak_step: Optional[int]
    peak_phase: Optional[str]
    at_peak: Dict[str, int]
    at_end: Dict[str, int]
    reserved_peak_bytes: Optional[int]
    ledger: Optional[Ledger]
    inferred: bool


class KernelMfu(Record):
    """MFU by the FLOPs of the kernels that ran."""

    value: float
    hfu: float
    model_flops_per_step: Optional[float]
    flops_per_step: Optional[float]
    known_share: float


class Mfu(Record):
    """How much of the devices is used."""

    convention: str
    flops_per_token: Optional[float]
    peak_flops: float
    value: Optional[float]
    training_value: Optional[float]
    hfu: Optional[float]
    by_convention: Dict[str, float]
    tokens_per_second: Optional[float]
    model_from: Optional[str]
    by_kernels: Optional[KernelMfu]


class Stage(Record):
    """A stage of a pipeline."""

    stage: int
    rank: int
    bubble: Optional[float]


class Pipeline(Record):
    """How the stages of a pipeline wait for each other."""

    stages: int
    micro_batches: int
    schedule: str
    bubble: Optional[float]
    ideal_bubble: float
    inferred: bool
    per_stage: List[Stage]


class Collective(Record):
    """Communication of one kind."""

    operation: str
    group_size: Optional[int]
    count: int
    bytes: Optional[int]
    busy_ns: int
    exposed_ns: int
    algorithm_bandwidth: Optional[float]
    bus_bandwidth: Optional[float]


class Straggler(Record):
    """How long a rank waits, and makes others wait."""

    rank: int
    wait_ns: int
    caused_wait_ns: int


class Place(Partition):
    """Ranks that run at one place: GPUs of one index, a host, a switch."""

    kind: str
    level: Optional[int]
    name: Optional[str]
    ranks: List[int]
    windows: int
    wait_ns: Optional[int]
    caused_wait_ns: Optional[int]


class Kernel(Record):
    """All kernels of one name."""

    name: str
    family: Optional[str]
    count: int
    total_ns: int
    mean_ns: float
    share: float
    flops_per_second: Optional[float]
    peak_share: Optional[float]
    bound: Optional[str]


class Shapes(Record):
    """What an operator launched for arguments of the same shapes."""

    shapes: Optional[str]
    count: int
    total_ns: int
    share: float
    flops_per_second: Optional[float]
    roof_share: Optional[float]
    names: List[str]


class Operator(Record):
    """Everything that one operator launched."""

    operator: Optional[str]
    count: int
    total_ns: int
    share: float
    small_count: int
    idle_before_ns: int
    flops_per_second: Optional[float]
    bytes_per_second: Optional[float]
    roof_share: Optional[float]
    shapes: List[Shapes]


class Module(Record):
    """Everything that one module launched, and those in it."""

    module: Optional[str]
    depth: int
    own_ns: int
    count: int
    total_ns: int
    share: float


class SourceLine(Record):
    """Everything that one function of the program launched."""

    source: Optional[str]
    count: int
    total_ns: int
    share: float


class Gemm(Record):
    """Matrix products of one shape."""

    batch: int
    m: int
    n: int
    k: int
    precision: Optional[str]
    layout: Optional[str]
    count: int
    total_ns: int
    flops_per_second: Optional[float]
    peak_share: Optional[float]
    kernel: str
    waves: Optional[float]
    wave_efficiency: Optional[float]
    misaligned: List[str]
    without_tensor_cores: bool


class Finding(Record):
    """What stands out, and what to try."""

    kind: str
    what: Optional[str]
    summary: Optional[str]
    advice: Optional[str]

    @property
    def text(self) -> str:
        """What it is, in a sentence."""
        return self.summary or self.what or self.kind


class TimeCause(Record):
    """Why a step takes more or less time."""

    cause: str
    base_ns: int
    other_ns: int
    change_ns: int
    low_ns: Optional[int]
    high_ns: Optional[int]
    significant: bool


class StepTimeChange(Record):
    """How a step's time changed. The causes add up to the change."""

    base_ns: int
    other_ns: int
    change_ns: int
    low_ns: Optional[int]
    high_ns: Optional[int]
    causes: List[TimeCause]


class MemoryCause(Record):
    """Why the peak of memory is higher or lower."""

    cause: str
    base_bytes: int
    other_bytes: int
    change_bytes: int


class PeakMemoryChange(Record):
    """How the peak of memory changed. The causes add up to the change."""

    base_bytes: int
    other_bytes: int
    change_bytes: int
    causes: List[MemoryCause]


class Metric(Record):
    """A figure of both runs."""

    metric: str
    unit: Optional[str]
    base: Optional[float]
    other: Optional[float]
    change: Optional[float]
    significant: Optional[bool]
