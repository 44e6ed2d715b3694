//! What is seen in the dashboard, as a trace for ui.perfetto.dev.

use std::path::PathBuf;

use anyhow::Result;
use stepscope_analyzer::{StepChoice, StepRange};
use stepscope_plan::text;
use stepscope_traces::{Run, Step};
use stepscope_tui::ExportScope;

use crate::{
    export::{Packing, Wanted, export},
    output::Output,
    source,
};

/// Writes it into the directory that the dashboard was opened in; says where to, or why not.
pub(crate) fn write(sources: &[PathBuf], scope: &ExportScope) -> Result<String, String> {
    let write = || -> Result<String> {
        let run = source::open(sources)?;
        let path = free_path(&name(&run, scope));
        let steps = if scope.steps == StepRange::ALL { StepChoice::Counted } else { StepChoice::Range(scope.steps) };
        let wanted = Wanted::of(steps, scope.ranks.clone()).quietly();
        let exported = Output::open(Some(&path))?.write_file(|file| export(&run, &wanted, Packing::None, file))?;
        let path = path.display();
        Ok(format!("wrote {path} ({}); open it in https://ui.perfetto.dev", text::bytes(exported.file_bytes())))
    };
    write().map_err(|error| error.to_string())
}

/// What a trace is called: the run, and what of it is there.
fn name(run: &Run, ExportScope { steps, ranks }: &ExportScope) -> String {
    let name = run.path.canonicalize().unwrap_or_else(|_| run.path.clone());
    let mut name = name.file_name().map_or_else(|| run.info.name.clone(), |name| name.to_string_lossy().into_owned());
    if let StepRange { from: Some(Step(from)), to: Some(Step(to)) } = steps {
        let last = to - 1;
        name += &if *from == last { format!("-step-{from}") } else { format!("-steps-{from}-{last}") };
    }
    ranks.iter().for_each(|rank| name += &format!("-rank-{rank}"));
    name
}

/// A file that is not there yet, in this directory.
fn free_path(name: &str) -> PathBuf {
    let numbered = (2..).map(|number| PathBuf::from(format!("{name}-{number}.pftrace")));
    let mut paths = std::iter::once(PathBuf::from(format!("{name}.pftrace"))).chain(numbered);
    paths.find(|path| !path.exists()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use stepscope_traces::Rank;

    use super::*;

    #[test]
    fn a_trace_says_what_is_in_it() {
        let run = Run::open(concat!(env!("CARGO_MANIFEST_DIR"), "/traces/samples/tp2").as_ref()).unwrap();
        let steps = |from, to| StepRange { from: Some(Step(from)), to: Some(Step(to)) };
        assert_eq!(name(&run, &ExportScope { steps: StepRange::ALL, ranks: Vec::new() }), "tp2");
        assert_eq!(name(&run, &ExportScope { steps: steps(3, 4), ranks: Vec::new() }), "tp2-step-3");
        assert_eq!(name(&run, &ExportScope { steps: steps(1, 4), ranks: vec![Rank(1)] }), "tp2-steps-1-3-rank-1");
    }

    #[test]
    fn a_source_that_is_gone_is_an_error_in_words() {
        let gone = write(&["/nowhere/at/all".into()], &ExportScope { steps: StepRange::ALL, ranks: Vec::new() });
        assert!(gone.is_err_and(|why| why.contains("/nowhere/at/all")));
    }
}
