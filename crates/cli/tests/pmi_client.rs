//! Our PMI client under our process manager and under Hydra.
//!
//! The processes of these jobs are this test program itself, with [`ROLE`] set.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{env, time::Duration};

use rig::meeting::{ROLE, meet};
use ropewalk::pmi::{Client, Dialect};

const TEST: &str = "clients_meet_under_both_process_managers";

/// Four processes tell each other something, under either process manager, and all goes well.
#[test]
fn clients_meet_under_both_process_managers() {
    if env::var_os(ROLE).is_some() {
        return meet();
    }
    let program = env::current_exe().unwrap();
    let managers = [
        (env!("CARGO_BIN_EXE_ropewalk"), &["run"][..]),
        ("mpiexec.hydra", &[]),
    ];
    for (manager, arguments) in managers {
        let output = assert_cmd::Command::new(manager)
            .args(arguments)
            .args(["-n", "4"])
            .arg(&program)
            .args([TEST, "--exact", "--nocapture"])
            .env(ROLE, "process")
            .timeout(Duration::from_secs(60))
            .output()
            .expect("mpiexec.hydra is missing: install the Debian packages mpich and libmpich-dev");
        assert!(output.status.success(), "{manager}: {output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text.matches("met 0 1 2 3").count(), 4, "{manager}: {text}");
    }
}

/// Many threads ask for more at once than fits into the socket's buffer, and all of it comes.
#[test]
fn answers_wait_for_a_slow_reader() {
    if env::var_os(ROLE).is_some() {
        return ask_for_much();
    }
    let output = assert_cmd::Command::new(env!("CARGO_BIN_EXE_ropewalk"))
        .args(["run", "-n", "1"])
        .arg(env::current_exe().unwrap())
        .args(["answers_wait_for_a_slow_reader", "--exact", "--nocapture"])
        .env(ROLE, "process")
        .timeout(Duration::from_secs(60))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("got 131072 values"), "{text}");
}

fn ask_for_much() {
    let client = Client::from_env_speaking(Dialect::Pmi2).unwrap().unwrap();
    client.set_timeout(Duration::from_secs(30));
    let value = vec![b'x'; 1000];
    client.put("k", &value).unwrap();
    let got = std::thread::scope(|scope| {
        let ask = || {
            let values = client.get_all(&["k"; 64 * 64]).unwrap();
            assert!(values.iter().all(|found| found.as_ref() == Some(&value)));
            values.len()
        };
        let threads: Vec<_> = (0..32).map(|_| scope.spawn(ask)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum::<usize>()
    });
    client.finalize().unwrap();
    println!("got {got} values");
}
