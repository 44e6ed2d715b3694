//! A run again, as close as somebody looks: spans, steps and moments, for pictures of them.

mod ideal;
mod links;
mod overlay;
mod rank_spans;
mod span_key;
mod step_passes;
mod stretch;
mod timeline_columns;

pub use ideal::ideal_work;
pub use links::Link;
pub use overlay::{Overlay, RankOverlay, analyze_with_overlay};
pub use rank_spans::{RankSpans, RankView, SpanFacts};
pub use step_passes::{RankWork, step_passes};
pub use stretch::{RunStretch, StretchChoice, StretchKind, StretchSpan, StretchStream};
pub use timeline_columns::{Column, Frame, LaneColumns, LongSpan, TimelineColumns};
