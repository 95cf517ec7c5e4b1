//! What every provider has to do, as tests: one function for each behaviour in `suite`, run for each
//! provider.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod suite;

/// Runs every behaviour on these fabrics, if they are there.
macro_rules! conformance {
    ($($name:ident: $expression:expr,)+) => {
        $(
            mod $name {
                super::behaviours!($expression);
            }
        )+
    };
}

macro_rules! behaviours {
    ($fabric:expr) => {
        super::behaviours!($fabric, [
            members::nobody_poses_as_another,
            members::the_fenced_stay_out,
            messages::all_endpoints_of_a_process_talk_to_each_other,
            messages::expected_messages_go_to_their_receive,
            messages::messages_arrive_in_order,
            messages::messages_of_every_size_arrive,
            messages::sleepers_are_woken,
            messages::talking_to_oneself,
            one_sided::allocated_memory_is_transferred,
            one_sided::cancelled_operations_end_in_silence,
            one_sided::handles_can_be_forwarded,
            one_sided::handles_that_grant_nothing_are_refused,
            one_sided::large_transfers_let_small_messages_pass,
            one_sided::one_sided_operations_take_offsets,
            one_sided::random_transfers_move_the_right_bytes,
            one_sided::withdrawal_ends_access,
            peers::clients_die_at_random,
            peers::connections_come_and_go,
            peers::death_ends_a_get,
            peers::death_ends_a_put,
            peers::death_ends_receives_at_once,
            peers::death_of_the_origin_leaves_the_target_well,
            peers::limits_are_busy_errors,
            peers::nobody_to_connect_to_is_an_error_at_once,
            peers::other_jobs_are_refused,
            peers::restarted_endpoints_are_found_at_their_address,
            peers::keys_of_an_earlier_incarnation_open_nothing,
            peers::silent_peers_are_found,
            peers::slow_consumers_hold_up_nobody_else,
            peers::stalled_peers_end_by_the_deadline,
        ]);
    };
    ($fabric:expr, [$($group:ident::$behaviour:ident),+ $(,)?]) => {
        $(
            #[test]
            fn $behaviour() {
                if let Some(fabric) = $fabric {
                    super::suite::$group::$behaviour(&fabric);
                }
            }
        )+
    };
}

use behaviours;

#[cfg(feature = "ofi")]
conformance! {
    ofi_shm: crate::suite::ofi("shm"),
    ofi_sockets: crate::suite::ofi("sockets"),
    ofi_tcp: crate::suite::ofi("tcp;ofi_rxm"),
}

conformance! {
    tcp: crate::suite::Fabric::of(ropewalk_fabric::Transports { shm: false, ..ropewalk_fabric::Transports::default() }),
    encrypted: crate::suite::Fabric::encrypted(ropewalk_fabric::Transports { shm: false, ..ropewalk_fabric::Transports::default() }),
    shm: crate::suite::Fabric::of(ropewalk_fabric::Transports { tcp: false, ..ropewalk_fabric::Transports::default() }),
    shm_without_process_vm: crate::suite::Fabric::of(ropewalk_fabric::Transports {
        tcp: false,
        process_vm: false,
        ..ropewalk_fabric::Transports::default()
    }),
    automatic: crate::suite::Fabric::of(ropewalk_fabric::Transports::default()),
    unix: crate::suite::Fabric::of(ropewalk_fabric::Transports { unix: true, ..ropewalk_fabric::Transports::default() }),
}

mod checked {
    super::behaviours!(
        crate::suite::Fabric::checked(ropewalk_fabric::Transports {
            shm: false,
            ..ropewalk_fabric::Transports::default()
        }),
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
