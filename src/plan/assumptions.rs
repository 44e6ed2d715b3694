//! What can be set of what a prediction takes for granted.

use clap::ValueEnum;
use stepscope_plan::{Assumptions, Attention, Device};

use super::recorded::Recorded;

#[derive(clap::Args)]
pub(super) struct AssumptionArguments {
    /// Share of the dense peak that matrix products reach.
    #[arg(long, value_name = "SHARE")]
    efficiency: Option<f64>,
    /// Share of the dense peak that flash attention reaches with heads of 128 in long sequences.
    #[arg(long, value_name = "SHARE")]
    attention_efficiency: Option<f64>,
    /// Share of the memory bandwidth that all other kernels reach.
    #[arg(long, value_name = "SHARE")]
    memory_efficiency: Option<f64>,
    /// Time between one kernel and the next, in µs.
    #[arg(long, value_name = "µS")]
    kernel_gap: Option<f64>,
    /// Time the host needs to launch a kernel, in µs.
    #[arg(long, value_name = "µS")]
    launch: Option<f64>,
    /// Share by which efficiencies and bandwidths may be off; sets the predicted range.
    #[arg(long, value_name = "SHARE")]
    spread: Option<f64>,
    /// Share of GPU memory that training can use.
    #[arg(long, value_name = "SHARE")]
    usable_memory: Option<f64>,
    /// GPUs per node.
    #[arg(long, value_name = "N")]
    gpus_per_node: Option<u64>,
    /// One-way bandwidth between the GPUs of a node, in GB/s.
    #[arg(long, value_name = "GB/S")]
    link_bandwidth: Option<f64>,
    /// Time of a message between the GPUs of a node however small, in µs.
    #[arg(long, value_name = "µS")]
    link_latency: Option<f64>,
    /// One-way network bandwidth per GPU to other nodes, in GB/s.
    #[arg(long, value_name = "GB/S")]
    network_bandwidth: Option<f64>,
    /// Time of a message between nodes however small, in µs.
    #[arg(long, value_name = "µS")]
    network_latency: Option<f64>,
    /// Share of compute that data-parallel communication can overlap with.
    #[arg(long, value_name = "SHARE")]
    data_overlap: Option<f64>,
    /// Share of tensor-parallel communication that overlaps with compute.
    #[arg(long, value_name = "SHARE")]
    tensor_overlap: Option<f64>,
    /// Attention implementation.
    #[arg(long, value_enum)]
    attention: Option<AttentionName>,
}

#[derive(Clone, Copy, ValueEnum)]
enum AttentionName {
    /// Tiled: the score matrix is never stored.
    Flash,
    /// Stores the score matrix, with dropout.
    Naive,
}

impl AssumptionArguments {
    /// The usual assumptions for a device, what recorded runs show of it, and what is set.
    pub(super) fn apply(&self, device: &Device, recorded: Option<&Recorded>) -> Assumptions {
        let usual = Assumptions::of(device);
        let recorded = recorded.filter(|recorded| recorded.device == device);
        let mut assumptions = recorded.map_or(usual, |recorded| recorded.calibration.apply(usual));
        // Divided, a decimal number stays the nearest to what was typed.
        let set = |target: &mut f64, value: Option<f64>, per_unit: f64| {
            if let Some(value) = value {
                *target = value / per_unit;
            }
        };
        const MICRO: f64 = 1e6;
        const GIGA: f64 = 1e-9;
        set(&mut assumptions.compute_efficiency, self.efficiency, 1.0);
        set(&mut assumptions.attention_efficiency, self.attention_efficiency, 1.0);
        set(&mut assumptions.memory_efficiency, self.memory_efficiency, 1.0);
        set(&mut assumptions.kernel_gap, self.kernel_gap, MICRO);
        set(&mut assumptions.launch, self.launch, MICRO);
        set(&mut assumptions.spread, self.spread, 1.0);
        set(&mut assumptions.usable_memory, self.usable_memory, 1.0);
        set(&mut assumptions.link_bandwidth, self.link_bandwidth, GIGA);
        set(&mut assumptions.network_bandwidth, self.network_bandwidth, GIGA);
        set(&mut assumptions.link_latency, self.link_latency, MICRO);
        set(&mut assumptions.network_latency, self.network_latency, MICRO);
        set(&mut assumptions.data_overlap, self.data_overlap, 1.0);
        set(&mut assumptions.tensor_overlap, self.tensor_overlap, 1.0);
        assumptions.gpus_per_node = self.gpus_per_node.unwrap_or(assumptions.gpus_per_node);
        assumptions.attention = match self.attention {
            None => assumptions.attention,
            Some(AttentionName::Flash) => Attention::Flash,
            Some(AttentionName::Naive) => Attention::Naive,
        };
        assumptions
    }
}
