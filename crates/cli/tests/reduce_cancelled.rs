//! Reductions that a rank cancels. What is checked stands in `examples/reduce_cancelled`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use rig::{run_example, told};

/// All ranks are told who cancelled, the one that calls late too, and the next call is not concerned: short and long
/// calls, on one host and on two.
#[test]
fn a_rank_cancels_for_all() {
    for hosts in [&[][..], &["-launcher", "fork", "-hosts", "h1:2,h2:2"]] {
        for length in ["1", "1000", "300000"] {
            let folder = tempfile::tempdir().unwrap();
            let arguments = [folder.path().to_str().unwrap(), length];
            let (_, stdout, stderr) = told(run_example("reduce_cancelled", 4, hosts, &arguments));
            assert_eq!(
                stdout.matches("cancelled: ok").count(),
                4,
                "{hosts:?} {length}: {stdout}{stderr}"
            );
        }
    }
}
