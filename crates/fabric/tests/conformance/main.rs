//! What every provider has to do, as tests: one function for each behaviour in `suite`, run for each provider.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod suite;

use ropewalk_fabric::{Endpoint, EndpointOptions};

/// Runs the named behaviours with endpoints made by `$bind`.
macro_rules! conformance {
    ($provider:ident, $bind:expr, [$($behaviour:ident),+ $(,)?]) => {
        mod $provider {
            $(
                #[test]
                fn $behaviour() {
                    super::suite::$behaviour(&super::suite::Fabric::new($bind));
                }
            )+
        }
    };
}

fn bind_tcp(options: EndpointOptions) -> Endpoint {
    Endpoint::bind(options).unwrap()
}

conformance!(
    tcp,
    super::bind_tcp,
    [
        all_endpoints_of_a_process_talk_to_each_other,
        cancelled_operations_end_in_silence,
        clients_die_at_random,
        connections_come_and_go,
        death_ends_a_get,
        death_ends_a_put,
        death_ends_receives_at_once,
        death_of_the_origin_leaves_the_target_well,
        expected_messages_go_to_their_receive,
        handles_can_be_forwarded,
        handles_that_grant_nothing_are_refused,
        large_transfers_let_small_messages_pass,
        limits_are_busy_errors,
        messages_arrive_in_order,
        messages_of_every_size_arrive,
        nobody_to_connect_to_is_an_error_at_once,
        one_sided_operations_take_offsets,
        other_jobs_are_refused,
        random_transfers_move_the_right_bytes,
        restarted_endpoints_are_found_at_their_address,
        sleepers_are_woken,
        slow_consumers_hold_up_nobody_else,
        stalled_peers_end_by_the_deadline,
        talking_to_oneself,
        withdrawal_ends_access,
    ]
);
