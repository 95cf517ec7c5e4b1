//! The behaviours of every provider, over those of this crate.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod suite;

use ropewalk_fabric::{Endpoint, Transports};
use suite::{Fabric, behaviours, conformance};

fn over(transports: Transports) -> Fabric {
    Fabric::new(Endpoint::bind, transports)
}

fn tcp() -> Transports {
    Transports {
        shm: false,
        ..Transports::default()
    }
}

fn shm() -> Transports {
    Transports {
        tcp: false,
        ..Transports::default()
    }
}

fn automatic_fabric() -> Option<Fabric> {
    Some(over(Transports::default()))
}

fn checked_fabric() -> Option<Fabric> {
    Some(Fabric {
        bulk_checksum: true,
        ..over(tcp())
    })
}

fn encrypted_fabric() -> Option<Fabric> {
    Some(Fabric {
        encrypt: true,
        ..over(tcp())
    })
}

fn shm_fabric() -> Option<Fabric> {
    Some(over(shm()))
}

fn shm_fabric_without_process_vm() -> Option<Fabric> {
    Some(over(Transports {
        process_vm: false,
        ..shm()
    }))
}

fn tcp_fabric() -> Option<Fabric> {
    Some(over(tcp()))
}

fn unix_fabric() -> Option<Fabric> {
    Some(over(Transports {
        unix: true,
        ..Transports::default()
    }))
}

conformance! {
    automatic: crate::automatic_fabric(),
    encrypted: crate::encrypted_fabric(),
    shm: crate::shm_fabric(),
    shm_without_process_vm: crate::shm_fabric_without_process_vm(),
    tcp: crate::tcp_fabric(),
    unix: crate::unix_fabric(),
}

mod checked {
    super::behaviours!(
        crate::checked_fabric(),
        [
            one_sided::allocated_memory_is_transferred,
            one_sided::cancelled_operations_end_in_silence,
            one_sided::handles_can_be_forwarded,
            one_sided::handles_that_grant_nothing_are_refused,
            one_sided::large_transfers_let_small_messages_pass,
            one_sided::one_sided_operations_take_offsets,
            one_sided::random_transfers_move_the_right_bytes,
            one_sided::withdrawal_ends_access,
        ]
    );
}
