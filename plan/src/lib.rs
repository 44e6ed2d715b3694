//! What a training run is, as arithmetic: pure, exact, and the same for everyone who needs it.
//!
//! ```
//! use stepscope_plan::{Convention, ModelShape};
//!
//! let model = ModelShape::preset("llama-8b")?;
//! assert_eq!(model.parameters(), 8_030_261_248);
//! // Training on 15 T tokens takes about 8e23 FLOPs.
//! let flops = model.flops_per_token(Convention::Model, 8192) * 15e12;
//! assert!((7e23..9e23).contains(&flops));
//! # Ok::<(), stepscope_plan::PlanError>(())
//! ```

mod activations;
mod assumptions;
mod calibration;
mod candidates;
mod communication;
mod compute;
#[cfg(feature = "files")]
mod config_file;
mod context;
mod counted;
mod description;
mod device;
mod dual_pipe;
mod error;
mod experts;
mod flops;
#[cfg(test)]
#[path = "../../tests/support/fuzz.rs"]
mod fuzz;
mod gathers;
mod instead;
mod latent;
mod layout;
mod memory;
mod numbers;
mod placement;
mod predict;
mod presets;
mod put_off;
mod schedule;
mod search;
mod shape;
mod shard;
mod simulate;
mod tensors;
pub mod text;
mod units;

pub use activations::Attention;
pub use assumptions::Assumptions;
pub use calibration::{Calibration, MeasuredAssumption, MeasuredRates};
pub use candidates::Wanted;
pub use communication::{Axis, Traffic};
pub use compute::{attention_by_shape, kernels_per_step};
pub use context::{CHUNKS_OF_RANK, ContextExchange};
pub use counted::{CountedModel, Model};
pub use device::{Device, Peaks, possible_peak};
pub use error::PlanError;
pub use flops::Convention;
pub use latent::Latent;
pub use layout::{Coordinates, ParallelLayout, Precision, Recompute, Zero};
pub use memory::MemoryPlan;
pub use numbers::NumberType;
pub use placement::{Placement, Slot, Unit};
pub use schedule::{Pass, Schedule, Turn, Work};
pub use search::{Configuration, Rejection, Request, Search};
pub use shape::{Biases, Experts, FeedForward, ModelShape, Norm};
pub use shard::shard;
pub use simulate::{Costs, Simulation, TimedWork};
pub use tensors::{Part, Split, Tensor};

#[cfg(test)]
mod properties;
#[cfg(test)]
mod published;
