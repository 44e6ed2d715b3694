//! How GPUs are while a job runs: what NVML tells, as counters in the run.
//!
//! | file | idea |
//! |---|---|
//! | `readings.rs` | every counter, what it means, and how it is read |
//! | `gauges.rs` | reads them, and leaves out once what a driver lacks |
//! | `sampler.rs` | the thread that does so at a steady pace |
//! | `claim.rs` | one sampler per node and device |
//! | `devices.rs` | which GPUs there are |

mod claim;
mod devices;
mod gauges;
mod readings;
mod sampler;

pub use devices::{DeviceSelector, Gpu, NvmlUnavailable, survey};
pub(crate) use devices::{driver_version, library_version};
pub use gauges::{LeftOut, Reading, SAMPLE_EVERY};
pub use readings::unit;
pub use sampler::Sampler;
