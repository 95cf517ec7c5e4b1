//! The addresses of this machine's network interfaces, with unsafe code for getifaddrs(3).

use std::{
    ffi::CStr,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ptr,
};

/// The addresses of this machine, each with the name of its interface, in the system's order; those of one link only
/// (IPv6, `fe80::`) are left out.
///
/// # Errors
/// If the system does not tell them.
pub fn interface_addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let mut first = ptr::null_mut();
    // SAFETY: it writes a list to where it is told, or fails.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: what is not null is an entry of the list, which is whole until it is freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: as above, for the entry's address.
        if let Some(address) = unsafe { address_of(entry.ifa_addr) } {
            // SAFETY: each entry has the name of its interface, which ends with a null.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            found.push((name.to_string_lossy().into_owned(), address));
        }
    }
    // SAFETY: this is the list that was made above, and nothing points into it any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// # Safety
/// The pointer is null or points to an address whose family says how long it is.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller's promise.
    let family = unsafe { address.as_ref()? }.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: the caller's promise; its place need not be one for this type.
            let address = unsafe { ptr::read_unaligned(address.cast::<libc::sockaddr_in>()) };
            Some(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let address = unsafe { ptr::read_unaligned(address.cast::<libc::sockaddr_in6>()) };
            let address = Ipv6Addr::from(address.sin6_addr.s6_addr);
            (!address.is_unicast_link_local()).then_some(address.into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every machine has the interface `lo` with the address of itself.
    #[test]
    fn loopback_is_an_interface() {
        let addresses = interface_addresses().unwrap();
        let loopback = ("lo".to_owned(), Ipv4Addr::LOCALHOST.into());
        assert!(addresses.contains(&loopback), "{addresses:?}");
    }
}
