//! What a device says is used, in parts that add up.
//!
//! For users, it is defined in `docs/src/metrics.md#memory`.

use crate::figures::{Ledger, LibraryMemory};

/// What a device holds at the peak of a program.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) allocated: u64,
    /// What the program's allocator has taken from the device.
    pub(crate) reserved: u64,
    /// What the device says is used beside that.
    pub(crate) beside: i64,
    /// What was used before the program began.
    pub(crate) driver: u64,
    pub(crate) beside_allocator: BesideAllocator,
}

/// What came with the program, and not by its allocator.
#[derive(Clone, Debug)]
pub(crate) enum BesideAllocator {
    /// As much as came with its first step.
    OfFirstStep(u64),
    /// As it was told, each for itself.
    Told { context: u64, held: HeldBeside },
}

/// What is held beside an allocator at a moment, as calls of the driver and records of kernels say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeldBeside {
    pub(crate) modules: u64,
    pub(crate) local_memory: u64,
    pub(crate) libraries: Vec<LibraryMemory>,
}

impl HeldBeside {
    fn of_libraries(&self) -> u64 {
        self.libraries.iter().fold(0, |sum, told| sum.saturating_add(told.bytes))
    }

    /// All of it.
    pub(crate) fn sum(&self) -> u64 {
        self.of_libraries().saturating_add(self.modules).saturating_add(self.local_memory)
    }
}

/// The parts, and what is left over. None where less is taken than allocated, which cannot be, or where sizes are beyond all
/// devices.
pub(crate) fn ledger(parts: Parts) -> Option<Ledger> {
    let Parts { allocated, reserved, beside, driver, beside_allocator } = parts;
    let (explained_beside, context, held, libraries_bytes) = match beside_allocator {
        BesideAllocator::OfFirstStep(bytes) => (i128::from(bytes), None, None, bytes),
        BesideAllocator::Told { context, held } => {
            let libraries = held.of_libraries();
            (i128::from(context) + i128::from(held.sum()), Some(context), Some(held), libraries)
        }
    };
    let used = i128::from(reserved) + i128::from(beside);
    let explained = i128::from(reserved) + i128::from(driver) + explained_beside;
    Some(Ledger {
        device_used_bytes: u64::try_from(used).ok()?,
        allocated_bytes: allocated,
        fragmentation_bytes: reserved.checked_sub(allocated)?,
        driver_bytes: driver,
        context_bytes: context,
        modules_bytes: held.as_ref().map(|held| held.modules),
        local_memory_bytes: held.as_ref().map(|held| held.local_memory),
        libraries_bytes,
        libraries: held.map_or_else(Vec::new, |held| held.libraries),
        residual_bytes: i64::try_from(used - explained).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::figures::MemoryLibrary;

    #[test]
    fn a_ledger_by_hand() {
        let beside_allocator = BesideAllocator::OfFirstStep(10);
        let parts = Parts { allocated: 60, reserved: 80, beside: 20, driver: 5, beside_allocator };
        let told = ledger(parts.clone()).unwrap();
        assert_eq!((told.device_used_bytes, told.fragmentation_bytes, told.residual_bytes), (100, 20, 5));
        let lines = [("fragmentation", 20), ("driver", 5), ("context and libraries", 10), ("residual", 5)];
        assert_eq!(told.lines(), lines);
        assert_eq!(ledger(Parts { beside: 10, ..parts.clone() }).unwrap().residual_bytes, -5);
        assert_eq!(ledger(Parts { allocated: 81, ..parts.clone() }), None);
        assert_eq!(ledger(Parts { beside: -81, ..parts.clone() }), None);
        assert_eq!(ledger(Parts { reserved: u64::MAX, beside: i64::MAX, ..parts }), None);
    }

    #[test]
    fn what_was_told_has_a_line_each() {
        let libraries = vec![LibraryMemory { library: MemoryLibrary::Nccl, bytes: 7 }];
        let held = HeldBeside { modules: 3, local_memory: 2, libraries };
        let beside_allocator = BesideAllocator::Told { context: 10, held };
        let told = ledger(Parts { allocated: 60, reserved: 80, beside: 30, driver: 5, beside_allocator }).unwrap();
        let lines = [
            ("fragmentation", 20),
            ("driver", 5),
            ("context", 10),
            ("CUDA modules", 3),
            ("local memory", 2),
            ("NCCL", 7),
            ("residual", 3),
        ];
        assert_eq!(told.lines(), lines);
        assert_eq!((told.libraries_bytes, told.driver_and_libraries()), (7, 27));
    }

    fn any_beside() -> impl Strategy<Value = BesideAllocator> {
        let bytes = || 0..1_u64 << 40;
        let library = (prop::sample::select(MemoryLibrary::ALL.to_vec()), bytes())
            .prop_map(|(library, bytes)| LibraryMemory { library, bytes });
        let told = (bytes(), bytes(), bytes(), prop::collection::vec(library, 0..6));
        prop_oneof![
            bytes().prop_map(BesideAllocator::OfFirstStep),
            told.prop_map(|(context, modules, local_memory, libraries)| {
                BesideAllocator::Told { context, held: HeldBeside { modules, local_memory, libraries } }
            }),
        ]
    }

    proptest! {
        #[test]
        fn the_parts_add_up(
            beside in 0..1_i64 << 48,
            reserved in 0..1_u64 << 48,
            share in 0.0..=1.0,
            driver in 0..1_u64 << 40,
            beside_allocator in any_beside(),
        ) {
            let allocated = (reserved as f64 * share) as u64;
            let told = ledger(Parts { allocated, reserved, beside, driver, beside_allocator }).unwrap();
            let shown: i64 = told.lines().iter().map(|(_, bytes)| bytes).sum();
            prop_assert_eq!(told.allocated_bytes as i64 + shown, told.device_used_bytes as i64);
            let explained = told.allocated_bytes + told.fragmentation_bytes + told.driver_and_libraries();
            prop_assert_eq!(explained as i64 + told.residual_bytes, told.device_used_bytes as i64);
            let libraries: u64 = told.libraries.iter().map(|told| told.bytes).sum();
            prop_assert!(told.context_bytes.is_none() || libraries == told.libraries_bytes);
            prop_assert_eq!(told.device_used_bytes, reserved + beside as u64);
        }
    }
}
