//! The inline functions of libfabric's headers: calls through the tables that its objects carry.
//!
//! # Safety
//! All of them are as unsafe as in C: objects must be live, and memory given to an operation must stay until
//! its completion.

#![allow(
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    reason = "the module says it for all, and the arguments are libfabric's"
)]

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr,
};

use super::types::{
    FI_ENABLE, fi_addr_t, fi_av_attr, fi_cq_attr, fi_cq_err_entry, fi_cq_msg_entry, fi_info, fid, fid_av,
    fid_cq, fid_domain, fid_ep, fid_fabric, fid_mr,
};

/// `fi_close`: frees an object.
pub unsafe fn fi_close(object: *mut fid) -> c_int {
    // SAFETY: as the module says, here and below.
    unsafe { ((*(*object).ops).close)(object) }
}

/// `fi_control`.
pub unsafe fn fi_control(object: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: see `fi_close`.
    unsafe { ((*(*object).ops).control)(object, command, argument) }
}

/// `fi_domain`.
pub unsafe fn fi_domain(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    domain: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: see `fi_close`.
    unsafe { ((*(*fabric).ops).domain)(fabric, info, domain, context) }
}

/// `fi_trywait` for one object.
pub unsafe fn fi_trywait(fabric: *mut fid_fabric, mut object: *mut fid) -> c_int {
    // SAFETY: see `fi_close`.
    unsafe { ((*(*fabric).ops).trywait)(fabric, &raw mut object, 1) }
}

/// `fi_av_open`.
pub unsafe fn fi_av_open(
    domain: *mut fid_domain,
    attributes: *mut fi_av_attr,
    av: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    // SAFETY: see `fi_close`.
    unsafe { ((*(*domain).ops).av_open)(domain, attributes, av, context) }
}

/// `fi_cq_open`.
pub unsafe fn fi_cq_open(
    domain: *mut fid_domain,
    attributes: *mut fi_cq_attr,
    cq: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: see `fi_close`.
    unsafe { ((*(*domain).ops).cq_open)(domain, attributes, cq, context) }
}

/// `fi_endpoint`.
pub unsafe fn fi_endpoint(
    domain: *mut fid_domain,
    info: *mut fi_info,
    ep: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: see `fi_close`.
    unsafe { ((*(*domain).ops).endpoint)(domain, info, ep, context) }
}

/// `fi_mr_reg`.
pub unsafe fn fi_mr_reg(
    domain: *mut fid_domain,
    start: *const c_void,
    length: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    mr: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: see `fi_close`.
    unsafe {
        ((*(*domain).mr).reg)(
            &raw mut (*domain).fid,
            start,
            length,
            access,
            offset,
            requested_key,
            flags,
            mr,
            context,
        )
    }
}

/// `fi_ep_bind`.
pub unsafe fn fi_ep_bind(ep: *mut fid_ep, object: *mut fid, flags: u64) -> c_int {
    // SAFETY: see `fi_close`.
    unsafe { ((*(*ep).fid.ops).bind)(&raw mut (*ep).fid, object, flags) }
}

/// `fi_enable`.
pub unsafe fn fi_enable(ep: *mut fid_ep) -> c_int {
    // SAFETY: see `fi_close`.
    unsafe { fi_control(&raw mut (*ep).fid, FI_ENABLE, ptr::null_mut()) }
}

/// `fi_getname`.
pub unsafe fn fi_getname(ep: *mut fid_ep, name: *mut c_void, length: *mut usize) -> c_int {
    // SAFETY: see `fi_close`.
    unsafe { ((*(*ep).cm).getname)(&raw mut (*ep).fid, name, length) }
}

/// `fi_recv`.
pub unsafe fn fi_recv(
    ep: *mut fid_ep,
    buffer: *mut c_void,
    length: usize,
    descriptor: *mut c_void,
    from: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: see `fi_close`.
    unsafe { ((*(*ep).msg).recv)(ep, buffer, length, descriptor, from, context) }
}

/// `fi_send`.
pub unsafe fn fi_send(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    descriptor: *mut c_void,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: see `fi_close`.
    unsafe { ((*(*ep).msg).send)(ep, buffer, length, descriptor, to, context) }
}

/// `fi_av_insert` of one address.
pub unsafe fn fi_av_insert(av: *mut fid_av, name: *const c_void, address: *mut fi_addr_t) -> c_int {
    // SAFETY: see `fi_close`.
    unsafe { ((*(*av).ops).insert)(av, name, 1, address, 0, ptr::null_mut()) }
}

/// `fi_av_remove` of one address.
pub unsafe fn fi_av_remove(av: *mut fid_av, mut address: fi_addr_t) -> c_int {
    // SAFETY: see `fi_close`.
    unsafe { ((*(*av).ops).remove)(av, &raw mut address, 1, 0) }
}

/// `fi_cq_read` of a queue in the format `FI_CQ_FORMAT_MSG`.
pub unsafe fn fi_cq_read(cq: *mut fid_cq, entries: *mut fi_cq_msg_entry, count: usize) -> isize {
    // SAFETY: see `fi_close`.
    unsafe { ((*(*cq).ops).read)(cq, entries.cast(), count) }
}

/// `fi_cq_readerr`.
pub unsafe fn fi_cq_readerr(cq: *mut fid_cq, entry: *mut fi_cq_err_entry) -> isize {
    // SAFETY: see `fi_close`.
    unsafe { ((*(*cq).ops).readerr)(cq, entry, 0) }
}

/// A copy of a text that libfabric may free, as it does the names in a `fi_info`; null if there is no memory.
pub fn duplicate(text: &CStr) -> *mut c_char {
    // SAFETY: it is a C string.
    unsafe { libc::strdup(text.as_ptr()) }
}
