//! The names of this host.

use ropewalk_launch_core::placement::is_local;
use rustix::system::uname;

/// The system's name of it.
pub(super) fn own_host_name() -> String {
    uname().nodename().to_string_lossy().into_owned()
}

/// Returns true if a name or address in a list of hosts means the host of this process.
pub fn is_own_host(name: &str) -> bool {
    is_local(name, &own_host_name())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It is what it calls itself, and `localhost`.
    #[test]
    fn the_own_host_knows_its_names() {
        assert!(is_own_host(&own_host_name()) && is_own_host("localhost"));
        assert!(!is_own_host("some.other.host"));
    }
}
