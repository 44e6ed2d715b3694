//! What a device says is used, in parts that add up.
//!
//! For users, it is defined in `docs/src/metrics.md#memory`.

use crate::figures::Ledger;

/// What is used, allocated, taken from the device, and was used before the program began. None where less is taken
/// than allocated, which cannot be, or where sizes are beyond all devices.
pub(crate) fn ledger(device_used: u64, allocated: u64, reserved: u64, driver: u64) -> Option<Ledger> {
    let explained = i128::from(reserved) + i128::from(driver);
    Some(Ledger {
        device_used_bytes: device_used,
        allocated_bytes: allocated,
        fragmentation_bytes: reserved.checked_sub(allocated)?,
        driver_bytes: driver,
        residual_bytes: i64::try_from(i128::from(device_used) - explained).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::ledger;

    #[test]
    fn a_ledger_by_hand() {
        let parts = ledger(100, 60, 80, 15).unwrap();
        assert_eq!((parts.fragmentation_bytes, parts.residual_bytes), (20, 5));
        assert_eq!(ledger(90, 60, 80, 15).unwrap().residual_bytes, -5);
        assert_eq!(ledger(100, 81, 80, 15), None);
        assert_eq!(ledger(u64::MAX, 0, 0, 0), None);
    }

    proptest! {
        #[test]
        fn the_parts_add_up(used in 0..1_u64 << 48, reserved in 0..1_u64 << 48, share in 0.0..=1.0, driver in 0..1_u64 << 40) {
            let parts = ledger(used, (reserved as f64 * share) as u64, reserved, driver).unwrap();
            let explained = parts.allocated_bytes + parts.fragmentation_bytes + parts.driver_bytes;
            prop_assert_eq!(explained as i64 + parts.residual_bytes, used as i64);
        }
    }
}
