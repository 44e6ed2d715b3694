//! Who may read hardware counters.
//!
//! A driver may keep them for administrators. That is about counters of the hardware only: kernels, copies and memory
//! are recorded without them, and NVML's samples need no permission.

use std::fs;

use serde::Serialize;

/// Whether hardware counters can be read. Unknown where the driver does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Whether the driver keeps them for administrators.
    pub admin_only: Option<bool>,
    /// Whether this process may read them.
    pub permitted: Option<bool>,
}

impl Counters {
    /// As the driver and the kernel say.
    pub(super) fn of_this_process() -> Counters {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Counters::of(&read("/proc/driver/nvidia/params"), &read("/proc/self/status"))
    }

    fn of(parameters: &str, status: &str) -> Counters {
        const SYS_ADMIN: u64 = 1 << 21;
        let value = |text: &str, key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            line.map(|value| value.trim().to_owned())
        };
        let admin_only = value(parameters, "RmProfilingAdminOnly").map(|value| value != "0");
        let capabilities = value(status, "CapEff").and_then(|value| u64::from_str_radix(&value, 16).ok());
        let is_admin = capabilities.map(|capabilities| capabilities & SYS_ADMIN != 0);
        let permitted = match (admin_only, is_admin) {
            (Some(false), _) => Some(true),
            (Some(true), is_admin) => is_admin,
            (None, _) => None,
        };
        Counters { admin_only, permitted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_and_the_kernel_are_taken_at_their_word() {
        let (open, closed) = ("Mobile: 4\nRmProfilingAdminOnly: 0\n", "RmProfilingAdminOnly: 1\nMobile: 4\n");
        let (admin, user) = ("Name:\tx\nCapEff:\t000001ffffffffff\n", "Name:\tx\nCapEff:\t00000000a80425fb\n");
        let counters = |admin_only, permitted| Counters { admin_only, permitted };
        assert_eq!(Counters::of(open, user), counters(Some(false), Some(true)));
        assert_eq!(Counters::of(closed, user), counters(Some(true), Some(false)));
        assert_eq!(Counters::of(closed, admin), counters(Some(true), Some(true)));
        assert_eq!(Counters::of(closed, ""), counters(Some(true), None));
        assert_eq!(Counters::of("", admin), counters(None, None));
    }
}
