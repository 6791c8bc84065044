//! Time that nobody can set: milliseconds since the machine started, and which start that was.
//!
//! Leases are counted in it. A wall clock that jumps by a day would end them all, or none.

use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

/// A moment of the machine's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// Which start of the machine.
    pub(super) boot: String,
    /// Milliseconds since then.
    pub(super) millis: i64,
}

impl Moment {
    /// Now. Where the kernel does not say, the wall clock has to do.
    pub(super) fn now() -> Self {
        Self::of_kernel().unwrap_or_else(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            Self {
                boot: String::new(),
                millis: since.map_or(0, |since| since.as_millis() as i64),
            }
        })
    }

    fn of_kernel() -> Option<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let uptime = fs::read_to_string("/proc/uptime").ok()?;
        let seconds: f64 = uptime.split_whitespace().next()?.parse().ok()?;
        Some(Self {
            boot: boot.trim().to_owned(),
            millis: (seconds * 1e3) as i64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on() {
        let first = Moment::now();
        std::thread::sleep(std::time::Duration::from_millis(30));
        let second = Moment::now();
        assert_eq!(first.boot, second.boot);
        assert!(second.millis > first.millis);
    }
}
