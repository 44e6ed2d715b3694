//! What a prediction takes for granted.

use serde::Serialize;

use crate::{activations::Attention, device::Device, error::PlanError};

/// What is taken for granted. Each can be set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Assumptions {
    /// The share of the peak that compute reaches while it computes.
    pub compute_efficiency: f64,
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
            compute_efficiency: 0.6,
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

    pub(crate) fn check(&self) -> Result<(), PlanError> {
        let shares = [
            ("compute efficiency", self.compute_efficiency, 0.001),
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
        for (what, latency) in [("link latency", self.link_latency), ("network latency", self.network_latency)] {
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
