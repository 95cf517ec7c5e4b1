//! Reductions on several hosts under MPICH's launcher. The ranks check themselves, in `examples/reduce_foreign.rs`.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use super::{
    network::{HOSTS, Network, ip},
    rig::{Guarded, await_true, example},
};

/// Between Hydra and a rank: Hydra kills all ranks of a host when a signal ends one, and does not tell what ranks say
/// whose host it has lost.
const SHELL: &str = "trap '' USR1; out=$0/$PMI_RANK; \"$@\" > $out.told 2>&1; code=$?; mv $out.told $out.ended; \
                     [ $code -le 128 ] || exit 1; exit $code";

/// A job of two ranks on each host, which write what they say to files of a folder.
fn hydra(network: &Network, folder: &Path, words: &[&str]) -> Command {
    let hosts: Vec<_> = (1..=HOSTS).map(|host| network.address(10 + host)).collect();
    let mut command = Command::new("mpiexec.hydra");
    command
        .args(["-localhost", &network.address(1)])
        .args(["-launcher", "rsh", "-launcher-exec", &network.command()])
        .args(["-disable-auto-cleanup", "-hosts", &hosts.join(",")])
        .args(["-ppn", "2", "-n", &(2 * HOSTS).to_string()])
        .args(["sh", "-c", SHELL])
        .arg(folder)
        .arg(example("reduce_foreign"))
        .args(words)
        .arg(folder)
        .stdin(Stdio::null());
    command
}

/// Waits until ranks have ended, and returns what the first line of each says.
fn told(folder: &Path, ranks: impl Iterator<Item = u32>) -> Vec<String> {
    let told = ranks.map(|rank| {
        let file = folder.join(format!("{rank}.ended"));
        await_true(&format!("rank {rank} does not end"), || file.exists());
        let text = fs::read_to_string(file).unwrap();
        text.lines().next().unwrap_or_default().to_owned()
    });
    told.collect()
}

/// A rank of the third host dies in a reduction: the others get an error with its name, or go on without it, or have
/// its contribution from another host.
#[test]
fn ranks_of_many_hosts_outlive_one() {
    let Some(network) = Network::new(96) else {
        return;
    };
    let ways = [
        ("fail", "contributions were lost with rank 4"),
        ("exclude", "went on without [4]"),
        ("copies", "all contributions counted"),
    ];
    for (way, ends) in ways {
        let folder = network.folder().join(way);
        fs::create_dir(&folder).unwrap();
        let job: Guarded = hydra(&network, &folder, &[way, "4", "500"])
            .spawn()
            .unwrap()
            .into();
        let others = || (0..2 * u32::from(HOSTS)).filter(|rank| *rank != 4);
        let expected: Vec<_> = others().map(|rank| format!("rank {rank}: {ends}")).collect();
        assert_eq!(told(&folder, others()), expected);
        drop(job);
    }
}

/// The third host is cut off. The ranks of the others are a majority and go on without its two; these stop, and say so.
#[test]
fn a_host_that_is_cut_off_stops_and_the_majority_goes_on() {
    let Some(network) = Network::new(97) else {
        return;
    };
    let folder = network.folder().join("cut");
    fs::create_dir(&folder).unwrap();
    // Nobody has this rank, and so nobody kills itself.
    let job: Guarded = hydra(&network, &folder, &["exclude", "99", "0"])
        .spawn()
        .unwrap()
        .into();
    for rank in 0..2 * u32::from(HOSTS) {
        await_true(&format!("rank {rank} has not begun"), || {
            folder.join(rank.to_string()).exists()
        });
    }
    assert!(ip(&format!("link set {} down", network.link(3))));
    let majority = [0, 1, 2, 3, 6, 7];
    let expected = majority.map(|rank| format!("rank {rank}: went on without [4, 5]"));
    assert_eq!(told(&folder, majority.into_iter()), expected);
    for (rank, told) in [4, 5].into_iter().zip(told(&folder, [4, 5].into_iter())) {
        let expected = format!("rank {rank}: error: this process, rank {rank}, is in the minority and stops");
        assert!(told.starts_with(&expected), "{told}");
    }
    drop(job);
}
