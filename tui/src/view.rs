//! Which views there are, and what they are called.

macro_rules! views {
    ($($(#[$doc:meta])* $name:ident: $word:literal, $title:literal, $short:literal;)*) => {
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
        }
    };
}

views! {
    /// Where steps go, and what stands out.
    Overview: "overview", "Overview", "Overview";
    /// What fills memory.
    Memory: "memory", "Memory", "Mem";
    /// What each stream of each rank did.
    Timeline: "timeline", "Timeline", "Time";
    /// What ranks say to each other, and who waits for whom.
    Communication: "communication", "Communication", "Comm";
    /// Which micro-batch each stage works on when.
    Pipeline: "pipeline", "Pipeline", "Pipe";
    /// What takes the time, by name.
    Kernels: "kernels", "Kernels", "Kernels";
    /// What devices say of themselves.
    Devices: "devices", "Devices", "Devices";
    /// The whole job at a glance.
    Ranks: "ranks", "Ranks", "Ranks";
    /// What went wrong.
    Incidents: "incidents", "Incidents", "Incidents";
}

impl View {
    /// The view that a number key shows.
    pub(crate) fn numbered(number: usize) -> Option<View> {
        View::ALL.get(number.checked_sub(1)?).copied()
    }

    /// The view this many places further, wrapping around.
    pub(crate) fn after(self, places: usize) -> View {
        let place = View::ALL.iter().position(|view| *view == self).unwrap_or(0);
        View::ALL[(place + places) % View::ALL.len()]
    }
}
