//! Values that layouts must have.

use clap::builder::{RangedU64ValueParser, TypedValueParser};
use stepscope_plan::{Recompute, Schedule, Wanted, Zero};

use crate::words;

#[derive(clap::Args)]
#[group(id = "wanted")]
pub(super) struct WantedArguments {
    /// Only layouts with N data-parallel replicas.
    #[arg(long, value_name = "N", value_parser = positive())]
    dp: Option<u64>,
    /// Only layouts with N tensor-parallel ranks; more than a node has are tried as well.
    #[arg(long, value_name = "N", value_parser = positive())]
    tp: Option<u64>,
    /// Only layouts with sequence parallelism; =false, only those without.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    sequence_parallel: Option<bool>,
    /// Only layouts with N context-parallel ranks; short sequences are cut as well.
    #[arg(long, value_name = "N", value_parser = positive())]
    cp: Option<u64>,
    /// Only layouts in which N replicas, or parts of sequences, share the experts.
    #[arg(long, value_name = "N", value_parser = positive())]
    ep: Option<u64>,
    /// Only layouts with N pipeline stages.
    #[arg(long, value_name = "N", value_parser = positive())]
    pp: Option<u64>,
    /// Only layouts with this ZeRO stage.
    #[arg(long, value_parser = words::zero())]
    zero: Option<Zero>,
    /// Only hybrid sharding (HSDP) with N groups of replicas; 1: only without.
    #[arg(long, value_name = "N", value_parser = positive())]
    dp_replicate: Option<u64>,
    /// Only layouts with units of N layers, which replicas gather, reduce and free at once [default: 1]
    #[arg(long, value_name = "N", value_parser = positive())]
    unit_layers: Option<u64>,
    /// Only this pipeline schedule, in layouts with stages [default: 1f1b, interleaved and zero-bubble]
    #[arg(long, value_parser = words::schedule())]
    schedule: Option<Schedule>,
    /// Only layouts with N model chunks per stage.
    #[arg(long, value_name = "N", value_parser = positive())]
    chunks: Option<u64>,
    /// Only layouts with B sequences per micro-batch; not only powers of two.
    #[arg(long, value_name = "B", value_parser = positive())]
    micro_batch: Option<u64>,
    /// Only layouts with this activation recomputation.
    #[arg(long, value_parser = words::recompute())]
    recompute: Option<Recompute>,
}

fn positive() -> impl TypedValueParser<Value = u64> {
    RangedU64ValueParser::<u64>::new().range(1..)
}

impl WantedArguments {
    pub(super) fn wanted(&self) -> Wanted {
        let &WantedArguments {
            dp,
            tp,
            sequence_parallel,
            cp,
            ep,
            pp,
            zero,
            dp_replicate,
            unit_layers,
            schedule,
            chunks,
            micro_batch,
            recompute,
        } = self;
        Wanted {
            dp,
            tp,
            sequence_parallel,
            cp,
            ep,
            pp,
            zero,
            dp_replicate,
            unit_layers,
            schedule,
            chunks,
            micro_batch,
            recompute,
        }
    }
}
