//! When a rank was recorded: all the time, or in windows that opened and closed. Nobody looked in between, so that time
//! belongs to nothing.

use stepscope_traces::{Names, RECORDED_WINDOW, SpanKind, Spans};

use crate::rank::{activity::Activities, step_windows::StepWindow};

/// The windows in which a rank was recorded, as far as it says so; none, where it was recorded all the time.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedWindows {
    /// In the host's time, where each begins and ends.
    windows: Vec<(i64, i64)>,
}

impl RecordedWindows {
    pub(crate) fn take(&mut self, names: &Names, spans: &Spans) {
        for row in 0..spans.len() {
            if spans.kind.get(row) == SpanKind::Range && names.get(spans.name.get(row)) == Some(RECORDED_WINDOW) {
                let (start, duration) = (spans.start_ns.get(row).0, spans.duration_ns.get(row).0.max(0));
                self.windows.push((start, start.saturating_add(duration)));
            }
        }
    }

    /// Brings them into order. One that was never closed is told of by what was recorded after the others.
    pub(crate) fn finish(&mut self, activities: &Activities) {
        self.windows.sort_unstable();
        let Some((_, last)) = self.windows.last().copied() else { return };
        let after = activities.items.iter().map(|activity| activity.start).find(|start| *start > last);
        self.windows.extend(after.map(|start| (start, i64::MAX)));
    }

    /// From the first start to the last end of any activity in each window: the time that was looked at. The activities are
    /// sorted by start.
    ///
    /// What was launched before a window closed may begin a little later, and what is launched while the next one is opened
    /// a little earlier; in the middle between them nothing does.
    pub(crate) fn extents(&self, activities: &Activities) -> Vec<(i64, i64)> {
        let mut extents: Vec<(i64, i64)> = Vec::new();
        let mut next = self.windows.windows(2).map(|pair| pair[0].1.midpoint(pair[1].0)).peekable();
        let mut is_new = true;
        for activity in &activities.items {
            while next.next_if(|begin| *begin <= activity.start).is_some() {
                is_new = true;
            }
            match extents.last_mut() {
                Some((_, end)) if !is_new => *end = activity.end.max(*end),
                _ => extents.push((activity.start, activity.end)),
            }
            is_new = false;
        }
        extents
    }

    /// Whether a step was recorded from its beginning to its end, by its annotation.
    pub(crate) fn have_all_of(&self, annotated: &StepWindow) -> bool {
        let has_all = |(start, end): &(i64, i64)| *start <= annotated.start && annotated.end <= *end;
        self.windows.is_empty() || self.windows.iter().any(has_all)
    }
}
