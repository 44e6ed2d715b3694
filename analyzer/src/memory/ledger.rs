//! What a device says is used, in parts that add up.

use serde::Serialize;

/// What the device says is used at the peak: categories + fragmentation + driver and libraries + residual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// Used, as the device says.
    pub device_used_bytes: u64,
    /// Allocated by the program.
    pub allocated_bytes: u64,
    /// Taken from the device and not allocated.
    pub fragmentation_bytes: u64,
    /// Used before the program allocated anything: driver, context and libraries.
    pub driver_bytes: u64,
    /// What is left over; negative where the parts are more than the device says.
    pub residual_bytes: i64,
}

impl Ledger {
    /// What is used, allocated, taken from the device, and was used before the program began. None where less is taken
    /// than allocated, which cannot be, or where sizes are beyond all devices.
    pub fn of(device_used: u64, allocated: u64, reserved: u64, driver: u64) -> Option<Ledger> {
        let explained = i128::from(reserved) + i128::from(driver);
        Some(Ledger {
            device_used_bytes: device_used,
            allocated_bytes: allocated,
            fragmentation_bytes: reserved.checked_sub(allocated)?,
            driver_bytes: driver,
            residual_bytes: i64::try_from(i128::from(device_used) - explained).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Ledger;

    #[test]
    fn a_ledger_by_hand() {
        let ledger = Ledger::of(100, 60, 80, 15).unwrap();
        assert_eq!((ledger.fragmentation_bytes, ledger.residual_bytes), (20, 5));
        assert_eq!(Ledger::of(90, 60, 80, 15).unwrap().residual_bytes, -5);
        assert_eq!(Ledger::of(100, 81, 80, 15), None);
        assert_eq!(Ledger::of(u64::MAX, 0, 0, 0), None);
    }

    proptest! {
        #[test]
        fn the_parts_add_up(used in 0..1_u64 << 48, reserved in 0..1_u64 << 48, share in 0.0..=1.0, driver in 0..1_u64 << 40) {
            let ledger = Ledger::of(used, (reserved as f64 * share) as u64, reserved, driver).unwrap();
            let parts = ledger.allocated_bytes + ledger.fragmentation_bytes + ledger.driver_bytes;
            prop_assert_eq!(parts as i64 + ledger.residual_bytes, used as i64);
        }
    }
}
