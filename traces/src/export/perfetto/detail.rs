//! What may be left out where a trace would be too large: whole levels of detail, the least telling first.

/// A level of detail. They are left out in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Arguments of all that there are many of: kernels, copies, fills, layers, ranges and launches. Their categories say
    /// the phase and the layer then.
    Arguments,
    /// Calls that launch work, ranges that a program named, and what ties launches to kernels.
    Host,
    /// What each category has after every event of memory.
    MemoryByCategory,
    /// What is allocated, and taken from the device, after every event of memory.
    Memory,
    /// Annotations of layers.
    Layers,
    /// Kernels, copies and fills themselves.
    Kernels,
    /// Collectives, sends and receives.
    Communication,
    /// Annotations of micro-batches and phases.
    Phases,
}

impl Level {
    /// Every level, in the order in which they are left out.
    pub const ALL: [Level; 8] = [
        Level::Arguments,
        Level::Host,
        Level::MemoryByCategory,
        Level::Memory,
        Level::Layers,
        Level::Kernels,
        Level::Communication,
        Level::Phases,
    ];

    /// What is left out with it, in words.
    pub fn words(self) -> &'static str {
        match self {
            Level::Arguments => "arguments of kernels",
            Level::Host => "host launches and ranges",
            Level::MemoryByCategory => "memory by category",
            Level::Memory => "memory over time",
            Level::Layers => "layers",
            Level::Kernels => "kernels, copies and fills",
            Level::Communication => "collectives and messages",
            Level::Phases => "micro-batches and phases",
        }
    }
}

/// Which levels are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    left_out: usize,
}

impl Detail {
    /// All of them.
    pub const ALL: Detail = Detail { left_out: 0 };

    /// None of them: steps, and what stands out.
    pub const LEAST: Detail = Detail { left_out: Level::ALL.len() };

    /// One level more; none where there is no more to add.
    pub fn more(self) -> Option<Detail> {
        Some(Detail { left_out: self.left_out.checked_sub(1)? })
    }

    /// One level less; none where there is no more to leave out.
    pub fn less(self) -> Option<Detail> {
        (self.left_out < Level::ALL.len()).then_some(Detail { left_out: self.left_out + 1 })
    }

    /// Whether a level is written.
    pub fn has(self, level: Level) -> bool {
        level as usize >= self.left_out
    }

    /// What is not.
    pub fn left_out(self) -> &'static [Level] {
        const LEVELS: &[Level] = &Level::ALL;
        &LEVELS[..self.left_out]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_left_out_one_after_another() {
        let details: Vec<Detail> = std::iter::successors(Some(Detail::ALL), |detail| detail.less()).collect();
        assert_eq!(details.len(), Level::ALL.len() + 1);
        assert_eq!(details.last(), Some(&Detail::LEAST));
        assert!(details.windows(2).all(|pair| pair[1].more() == Some(pair[0])) && Detail::ALL.more().is_none());
        for (count, detail) in details.iter().enumerate() {
            assert_eq!(detail.left_out(), &Level::ALL[..count]);
            assert!(Level::ALL.iter().all(|level| detail.has(*level) != detail.left_out().contains(level)));
        }
    }
}
