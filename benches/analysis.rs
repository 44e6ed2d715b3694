//! What an analysis takes, beside what it may take: `cargo bench --bench analysis`.

mod binary;
mod figures;

use std::{error::Error, path::Path};

use stepscope_traces::{Run, synthetic::Recipe};

use crate::{
    binary::Timed,
    figures::{Estimate, Table},
};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let scratch = tempfile::tempdir()?;
    let mut table = Table::default();
    let small = analysis(&scratch.path().join("small"), &Recipe { steps: 232, ..rank() })?;
    let large = analysis(&scratch.path().join("large"), &Recipe { steps: 2320, ..rank() })?;
    let wide =
        analysis(&scratch.path().join("wide"), &Recipe { steps: 116, micro_batches: 8, replicas: 64, ..rank() })?;
    let millions = [&small, &large, &wide].map(|analysis| format!("{:.1} M", analysis.spans as f64 / 1e6)).join(", ");
    let linear = (large.seconds.value / large.spans as f64) / (small.seconds.value / small.spans as f64);
    table.at_most("10 M spans on one rank", "s", 4.0, large.seconds);
    table.at_most("memory of one rank", "MB", 1000.0, Estimate::exact(large.megabytes));
    table.at_most("64 ranks of 1 M spans", "s", 40.0, wide.seconds);
    table.at_most("memory of 64 ranks", "MB", 1000.0, Estimate::exact(wide.megabytes));
    table.at_most("a span of 10 M over one of 1 M", "x", 1.5, Estimate::exact(linear));
    println!("{table}\n\nspans of the three runs: {millions}");
    table.end()
}

/// A rank of a training job; more steps are more spans.
fn rank() -> Recipe {
    Recipe { micro_batches: 4, layers: 32, kernels_per_layer: 14, ..Recipe::default() }
}

struct Analyzed {
    spans: u64,
    seconds: Estimate,
    megabytes: f64,
}

fn analysis(path: &Path, recipe: &Recipe) -> Outcome<Analyzed> {
    recipe.write(path)?;
    let run = Run::open(path)?;
    let spans = run.ranks.iter().map(|rank| Ok(rank.survey()?.spans.rows)).sum::<Outcome<u64>>()?;
    let Timed { seconds, megabytes } = binary::analysis(path)?;
    Ok(Analyzed { spans, seconds, megabytes })
}
