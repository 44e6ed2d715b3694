//! What a device says is used, in parts that add up.
//!
//! For users, it is defined in `docs/src/metrics.md#memory`.

use crate::figures::Ledger;

/// What a device holds at the peak of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    pub(crate) allocated: u64,
    /// What the program's allocator has taken from the device.
    pub(crate) reserved: u64,
    /// What the device says is used beside that.
    pub(crate) beside: i64,
    /// What was used before the program began.
    pub(crate) driver: u64,
    /// What came with its first step, and not by its allocator.
    pub(crate) libraries: u64,
}

/// The parts, and what is left over. None where less is taken than allocated, which cannot be, or where sizes are beyond all
/// devices.
pub(crate) fn ledger(parts: &Parts) -> Option<Ledger> {
    let Parts { allocated, reserved, beside, driver, libraries } = *parts;
    let used = i128::from(reserved) + i128::from(beside);
    let explained = i128::from(reserved) + i128::from(driver) + i128::from(libraries);
    Some(Ledger {
        device_used_bytes: u64::try_from(used).ok()?,
        allocated_bytes: allocated,
        fragmentation_bytes: reserved.checked_sub(allocated)?,
        driver_bytes: driver,
        libraries_bytes: libraries,
        residual_bytes: i64::try_from(used - explained).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_ledger_by_hand() {
        let parts = Parts { allocated: 60, reserved: 80, beside: 20, driver: 5, libraries: 10 };
        let told = ledger(&parts).unwrap();
        assert_eq!((told.device_used_bytes, told.fragmentation_bytes, told.residual_bytes), (100, 20, 5));
        assert_eq!(ledger(&Parts { beside: 10, ..parts }).unwrap().residual_bytes, -5);
        assert_eq!(ledger(&Parts { allocated: 81, ..parts }), None);
        assert_eq!(ledger(&Parts { beside: -81, ..parts }), None);
        assert_eq!(ledger(&Parts { reserved: u64::MAX, beside: i64::MAX, ..parts }), None);
    }

    proptest! {
        #[test]
        fn the_parts_add_up(
            beside in 0..1_i64 << 48,
            reserved in 0..1_u64 << 48,
            share in 0.0..=1.0,
            driver in 0..1_u64 << 40,
            libraries in 0..1_u64 << 40,
        ) {
            let allocated = (reserved as f64 * share) as u64;
            let told = ledger(&Parts { allocated, reserved, beside, driver, libraries }).unwrap();
            let explained = told.allocated_bytes + told.fragmentation_bytes + told.driver_bytes + told.libraries_bytes;
            prop_assert_eq!(explained as i64 + told.residual_bytes, told.device_used_bytes as i64);
            prop_assert_eq!(told.device_used_bytes, reserved + beside as u64);
        }
    }
}
