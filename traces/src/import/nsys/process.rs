//! Processes and threads, as Nsight Systems numbers them: machine, process and thread in one number.

const BITS: u32 = 24;
const MASK: i64 = (1 << BITS) - 1;

/// A process of one of the machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Process(i64);

impl Process {
    /// The process of a `globalPid` or a `globalTid`.
    pub(super) fn of(global: i64) -> Process {
        Process(global >> BITS)
    }

    /// Its number on its machine.
    pub(super) fn pid(self) -> u32 {
        (self.0 & MASK) as u32
    }
}

/// The number of a thread, of a `globalTid`.
pub(super) fn thread(global: i64) -> u32 {
    (global & MASK) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_real_export() {
        let global = 281_694_691_144_619;
        assert_eq!((Process::of(global).pid(), thread(global)), (13096, 13227));
        assert_eq!(Process::of(global), Process::of(281_694_691_131_392));
        assert_eq!((Process::of(-1).pid(), thread(-1)), (0xff_ffff, 0xff_ffff));
    }
}
