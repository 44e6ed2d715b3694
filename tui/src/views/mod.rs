//! What views draw and do: one file for each, with its own keys.

mod communication;
mod devices;
mod incidents;
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
    view::View,
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
    ($($name:ident in $module:ident;)*) => {
        /// The keys that mean something in a view alone.
        pub(crate) fn bindings(view: View) -> &'static [Binding] {
            match view { $(View::$name => $module::BINDINGS,)* }
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
    Overview in overview;
    Memory in memory;
    Timeline in timeline;
    Communication in communication;
    Pipeline in pipeline;
    Kernels in kernels;
    Devices in devices;
    Ranks in ranks;
    Incidents in incidents;
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::KeyCode;

    use super::*;

    #[test]
    fn no_key_means_two_things() {
        for view in View::ALL {
            let keys: Vec<&KeyCode> = bindings(*view).iter().flat_map(|binding| binding.keys).collect();
            for (index, key) in keys.iter().enumerate() {
                assert!(!keys[..index].contains(key), "{key} means two things in {}", view.name());
            }
        }
    }
}
