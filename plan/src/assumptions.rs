//! What a prediction takes for granted.

use serde::Serialize;

use crate::{activations::Attention, device::Device, error::PlanError};

/// What is taken for granted. Each can be set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Assumptions {
    /// The share of the peak that matrix products reach.
    pub compute_efficiency: f64,
    /// The share of the peak that flash attention reaches with heads of 128 in long sequences, by the FLOPs that a causal mask
    /// leaves.
    pub attention_efficiency: f64,
    /// The share of the memory's bandwidth that all other kernels reach.
    pub memory_efficiency: f64,
    /// Seconds between the end of a kernel and the start of the next one.
    pub kernel_gap: f64,
    /// Seconds that the host needs to launch a kernel.
    pub launch: f64,
    /// The share by which efficiencies and bandwidths may be lower or higher: what ranges are made of.
    pub spread: f64,
    /// The share of a device's memory that training can use.
    pub usable_memory: f64,
    /// Devices of a node.
    pub gpus_per_node: u64,
    /// Bytes a second, one way, between two devices of a node.
    pub link_bandwidth: f64,
    /// Seconds that a message takes between them, however small.
    pub link_latency: f64,
    /// Bytes a second, one way, that each device of a node adds to its way to other nodes.
    pub network_bandwidth: f64,
    /// Seconds that a message takes between nodes, however small.
    pub network_latency: f64,
    /// The share of the compute beside which data-parallel communication can run that really hides it.
    pub data_overlap: f64,
    /// The share of tensor-parallel communication that is hidden.
    pub tensor_overlap: f64,
    /// How attention is computed.
    pub attention: Attention,
}

impl Assumptions {
    /// For a device.
    pub fn of(device: &Device) -> Assumptions {
        Assumptions {
            // What cuBLAS, cuDNN and our own kernels reached in runs recorded on an H200.
            compute_efficiency: 0.75,
            attention_efficiency: 0.62,
            memory_efficiency: 0.8,
            kernel_gap: 3e-6,
            // A launch on such a machine, when nothing is recorded.
            launch: 4.2e-6,
            spread: 0.1,
            usable_memory: 0.92,
            gpus_per_node: 8,
            link_bandwidth: device.link_bandwidth,
            // What NCCL's own tuning takes a hop of a ring for, with large messages.
            link_latency: 3.4e-6,
            network_bandwidth: device.network_bandwidth,
            network_latency: 14e-6,
            data_overlap: 0.8,
            tensor_overlap: 0.0,
            attention: Attention::Flash,
        }
    }

    /// Bytes of a device that training can use.
    pub(crate) fn usable_bytes(&self, device: &Device) -> u64 {
        (device.memory_bytes as f64 * self.usable_memory) as u64
    }

    /// All of it better by the spread.
    pub(crate) fn faster(&self) -> Assumptions {
        self.scaled(1.0 + self.spread)
    }

    /// All of it worse by the spread.
    pub(crate) fn slower(&self) -> Assumptions {
        self.scaled(1.0 / (1.0 + self.spread))
    }

    fn scaled(&self, by: f64) -> Assumptions {
        let share = |share: f64| (share * by).min(1.0);
        Assumptions {
            compute_efficiency: share(self.compute_efficiency),
            attention_efficiency: share(self.attention_efficiency),
            memory_efficiency: share(self.memory_efficiency),
            data_overlap: share(self.data_overlap),
            kernel_gap: self.kernel_gap / by,
            launch: self.launch / by,
            link_bandwidth: self.link_bandwidth * by,
            network_bandwidth: self.network_bandwidth * by,
            ..*self
        }
    }

    pub(crate) fn check(&self) -> Result<(), PlanError> {
        let shares = [
            ("compute efficiency", self.compute_efficiency, 0.001),
            ("attention efficiency", self.attention_efficiency, 0.001),
            ("memory efficiency", self.memory_efficiency, 0.001),
            ("spread", self.spread, 0.0),
            ("usable memory", self.usable_memory, 0.001),
            ("data overlap", self.data_overlap, 0.0),
            ("tensor overlap", self.tensor_overlap, 0.0),
        ];
        for (what, share, least) in shares {
            if !(least..=1.0).contains(&share) {
                return Err(PlanError::Request(format!("{what} is {share}; it must be between {least} and 1")));
            }
        }
        let rates = [("link bandwidth", self.link_bandwidth), ("network bandwidth", self.network_bandwidth)];
        for (what, rate) in rates {
            if !rate.is_finite() || rate < 1.0 {
                return Err(PlanError::Request(format!("{what} is {rate} bytes per second; it must be positive")));
            }
        }
        let latencies = [
            ("link latency", self.link_latency),
            ("network latency", self.network_latency),
            ("the gap between kernels", self.kernel_gap),
            ("a launch", self.launch),
        ];
        for (what, latency) in latencies {
            if !(0.0..=1.0).contains(&latency) {
                let microseconds = latency * 1e6;
                return Err(PlanError::Request(format!(
                    "{what} is {microseconds:.3e} µs; it must be between 0 and 1e6"
                )));
            }
        }
        if !(1..=1 << 20).contains(&self.gpus_per_node) {
            return Err(PlanError::Request(format!("a node cannot have {} GPUs", self.gpus_per_node)));
        }
        Ok(())
    }
}
