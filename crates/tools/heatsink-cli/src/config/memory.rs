//! How much memory this process may use.
//!
//! Called by: the conversion of settings, for bounds that depend on it.

use std::fs;

/// Limits of a container, by the version of control groups.
const CGROUP_LIMITS: [&str; 2] =
    ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];

/// The memory of the machine, or of the container if that is less; `None` if nobody says.
pub(super) fn available() -> Option<u64> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").as_deref().and_then(total);
    let container = CGROUP_LIMITS.iter().find_map(|path| read(path)?.trim().parse().ok());
    machine.into_iter().chain(container).min()
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_found() {
        let meminfo = "MemFree:  1 kB\nMemTotal:       16318480 kB\nMemAvailable: 2 kB\n";
        assert_eq!(total(meminfo), Some(16_318_480 * 1024));
        assert_eq!(total("MemFree:  1 kB\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_has_some() {
        assert!(available().is_some_and(|bytes| bytes > 1 << 20));
    }
}
