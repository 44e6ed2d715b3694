use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};

use crate::{
    scene::{Kit, Scene},
    skipped::skipped,
};

/// Has it go wrong once, and says what came of it. It panics if a promise is broken.
type Inflict = Box<dyn Fn(&Scene) -> Result<String, Skip> + Send + Sync>;

/// Something that goes wrong, and what must hold all the same.
pub(crate) struct Fault {
    pub(crate) hits: &'static str,
    pub(crate) name: String,
    inflict: Inflict,
}

/// Why a fault cannot be inflicted here: what is missing, in a word of `STEPSCOPE_REQUIRE`, and why.
pub(crate) struct Skip(pub(crate) &'static str, pub(crate) String);

/// What came of a fault.
pub(crate) enum Came {
    /// All that must; and what was seen.
    Held(String),
    Broke(String),
    Skipped(String),
}

impl Fault {
    /// A fault that is inflicted by a function, which panics if a promise is broken and else says what it saw.
    pub(crate) fn new(
        hits: &'static str,
        name: impl Into<String>,
        inflict: impl Fn(&Scene) -> Result<String, Skip> + Send + Sync + 'static,
    ) -> Fault {
        Fault { hits, name: name.into(), inflict: Box::new(inflict) }
    }

    /// Inflicts it in a place of its own.
    pub(crate) fn inflict(&self, kit: &Kit, round: u64) -> Came {
        let inflict = || match catch_unwind(AssertUnwindSafe(|| (self.inflict)(&Scene::new(kit, round)))) {
            Ok(Ok(seen)) => Came::Held(seen),
            Ok(Err(Skip(need, why))) => {
                skipped(need, &why);
                Came::Skipped(why)
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
                // All of it is on stderr.
                Came::Broke(format!("in round {round}: {}", text.lines().next().unwrap_or_default()))
            }
        };
        // A thread of its own, so that what is skipped has its name.
        thread::scope(|scope| {
            let thread = thread::Builder::new().name(self.name.clone()).spawn_scoped(scope, inflict).unwrap();
            thread.join().unwrap_or_else(|_| Came::Broke("what it lacks is required".into()))
        })
    }
}

impl fmt::Display for Came {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Came::Held(seen) => write!(formatter, "{seen}"),
            Came::Broke(how) => write!(formatter, "BROKEN: {how}"),
            Came::Skipped(why) => write!(formatter, "skipped: {why}"),
        }
    }
}
