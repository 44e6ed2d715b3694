//! What can be looked at: one file for each view, and one list of them.

mod communication;
mod devices;
mod kernels;
mod memory;
mod overview;
mod pipeline;
mod ranks;
mod stretch;
mod timeline;

use ratatui::{buffer::Buffer, crossterm::event::MouseEvent, layout::Rect};

use crate::{
    data::DetailRequest,
    filter::Filter,
    keys::{Action, Binding},
    scene::Scene,
};

/// What every view has. What of it is its own (what is scrolled, how things are sorted) it keeps itself.
pub(crate) trait ViewBody {
    /// Draws it.
    fn draw(&mut self, scene: &Scene<'_>, area: Rect, buffer: &mut Buffer);

    /// Does what one of its own keys asks for.
    fn act(&mut self, action: Action, scene: &Scene<'_>);

    /// What it would like to see beside the snapshot, as it was drawn last.
    fn detail_request(&self, _scene: &Scene<'_>) -> Option<DetailRequest> {
        None
    }

    /// What is typed to see only a part of it, in views that have that.
    fn filter(&mut self) -> Option<&mut Filter> {
        None
    }

    /// What is under its cursor, for every view.
    fn take(&mut self, _scene: &Scene<'_>) -> Option<StepOrRank> {
        None
    }

    /// What a click on it asks for.
    fn click(&mut self, _event: &MouseEvent, _scene: &Scene<'_>) -> Option<StepOrRank> {
        None
    }
}

/// What a click chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepOrRank {
    /// A step.
    Step(stepscope_traces::Step),
    /// A rank.
    Rank(stepscope_traces::Rank),
}

macro_rules! views {
    ($($(#[$doc:meta])* $name:ident in $module:ident: $word:literal, $title:literal, $short:literal;)*) => {
        /// Something that can be looked at.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum View {
            $($(#[$doc])* $name,)*
        }

        impl View {
            /// Every view, in the order of their numbers.
            pub const ALL: &[View] = &[$(View::$name),*];

            /// The word for it on the command line.
            pub fn name(self) -> &'static str {
                match self { $(View::$name => $word,)* }
            }

            pub(crate) fn title(self) -> &'static str {
                match self { $(View::$name => $title,)* }
            }

            /// Its title, where there is little room.
            pub(crate) fn short_title(self) -> &'static str {
                match self { $(View::$name => $short,)* }
            }

            /// The keys that mean something in it alone.
            pub(crate) fn bindings(self) -> &'static [Binding] {
                match self { $(View::$name => $module::BINDINGS,)* }
            }
        }

        /// The state of every view.
        #[derive(Default)]
        pub(crate) struct Views {
            $($module: $module::$name,)*
        }

        impl Views {
            pub(crate) fn of(&mut self, view: View) -> &mut dyn ViewBody {
                match view { $(View::$name => &mut self.$module,)* }
            }
        }
    };
}

views! {
    /// Where steps go, and what stands out.
    Overview in overview: "overview", "Overview", "Overview";
    /// What fills memory.
    Memory in memory: "memory", "Memory", "Memory";
    /// What each stream of each rank did.
    Timeline in timeline: "timeline", "Timeline", "Time";
    /// What ranks say to each other, and who waits for whom.
    Communication in communication: "communication", "Communication", "Comm";
    /// Which micro-batch each stage works on when.
    Pipeline in pipeline: "pipeline", "Pipeline", "Pipe";
    /// What takes the time, by name.
    Kernels in kernels: "kernels", "Kernels", "Kernels";
    /// What devices say of themselves.
    Devices in devices: "devices", "Devices", "Devices";
    /// The whole job at a glance.
    Ranks in ranks: "ranks", "Ranks", "Ranks";
}

impl View {
    /// The view that a number key shows.
    pub(crate) fn numbered(number: usize) -> Option<View> {
        View::ALL.get(number.checked_sub(1)?).copied()
    }

    /// The view so many places on, around the end.
    pub(crate) fn after(self, places: usize) -> View {
        let place = View::ALL.iter().position(|view| *view == self).unwrap_or(0);
        View::ALL[(place + places) % View::ALL.len()]
    }
}
