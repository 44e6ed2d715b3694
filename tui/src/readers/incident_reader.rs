//! Reads what went wrong in a run that is followed, only when something of it has changed.

use std::time::{Duration, SystemTime};

use stepscope_analyzer::{KnownIncident, known_incidents};
use stepscope_traces::{KeptIncident, Run, State};

/// File systems may tell times this coarsely: what changed later than that is read once more.
const COARSE: Duration = Duration::from_secs(2);

/// What went wrong in a run, as it was read last.
#[derive(Default)]
pub(crate) struct IncidentReader {
    /// When incidents were written to last, and what had become of the run.
    read: Option<(Option<SystemTime>, State)>,
    incidents: Vec<KnownIncident>,
}

impl IncidentReader {
    /// What went wrong in a run.
    pub(crate) fn read(&mut self, run: &Run) -> Vec<KnownIncident> {
        let written = KeptIncident::last_written(&run.path);
        let is_recent = written.is_some_and(|time| time.elapsed().map_or(true, |age| age < COARSE));
        let now = (written, run.state());
        if is_recent || self.read != Some(now) {
            self.incidents = known_incidents(run);
            self.read = Some(now);
        }
        self.incidents.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use stepscope_traces::{Incident, IncidentKind, Nanos, RunInfo};

    use super::*;

    fn incident(summary: &str) -> Incident {
        Incident {
            kind: IncidentKind::SlowStep,
            time_ns: Nanos(1),
            step: None,
            ranks: Vec::new(),
            summary: summary.into(),
            evidence: Vec::new(),
            steps: None,
            ended_job: false,
            explained: false,
            stacks: Vec::new(),
        }
    }

    #[test]
    fn incidents_are_read_when_they_are_written() {
        let directory = tempfile::tempdir().unwrap();
        RunInfo::of_this_process("slow").create(directory.path()).unwrap();
        let run = Run::open(directory.path()).unwrap();
        let mut reader = IncidentReader::default();
        let summaries = |reader: &mut IncidentReader| -> Vec<String> {
            reader.read(&run).into_iter().map(|known| known.incident.summary).collect()
        };
        assert!(summaries(&mut reader).is_empty());
        let mut kept = KeptIncident::create(directory.path(), incident("a step was slow")).unwrap();
        assert_eq!(summaries(&mut reader), ["a step was slow"]);
        kept.incident.summary = "a step waited for a disk".into();
        kept.write().unwrap();
        assert_eq!(summaries(&mut reader), ["a step waited for a disk"], "explained later");
        // What nobody has written to for a while is not read again.
        let long_ago = SystemTime::now() - Duration::from_secs(60);
        for path in [directory.path().join("incidents"), kept.path.clone()] {
            fs::File::open(path).unwrap().set_modified(long_ago).unwrap();
        }
        summaries(&mut reader);
        fs::write(kept.path.join("incident.json"), "{}").unwrap();
        assert_eq!(summaries(&mut reader), ["a step waited for a disk"]);
    }
}
