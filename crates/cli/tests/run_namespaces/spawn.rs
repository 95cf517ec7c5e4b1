//! Processes that a program of MPI spawns on hosts with addresses of their own.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    ROPEWALK,
    network::{HOSTS, Network},
    text,
};

/// Each spawned process meets all others and those that spawned it.
const SCRIPT: &str = "\
import socket, sys
from mpi4py import MPI
parent = MPI.Comm.Get_parent()
if parent == MPI.COMM_NULL:
    other = MPI.COMM_WORLD.Spawn(sys.executable, [__file__], maxprocs=4)
else:
    other = parent
everybody = other.Merge(parent != MPI.COMM_NULL)
total = everybody.allreduce(everybody.rank)
who = everybody.gather((socket.gethostname(), parent != MPI.COMM_NULL))
if everybody.rank == 0:
    for host, is_spawned in sorted(who):
        print(host, 'spawned' if is_spawned else 'began', total)
other.Disconnect()
";

/// Debian's MPICH cannot spawn; the one from PyPI can, in an environment that `cargo xtask mpi4py` makes, beside the
/// folder of the command.
fn python() -> PathBuf {
    let target = Path::new(ROPEWALK).ancestors().nth(2).unwrap();
    let python = target.join("mpi4py/venv/bin/python");
    assert!(
        python.exists(),
        "there is no {}: run `cargo xtask mpi4py test_comm` once",
        python.display()
    );
    python
}

/// `MPI_Comm_spawn` of MPICH puts a process on each of four hosts, in a chain of agents and in a tree, and all talk to
/// each other.
#[test]
fn mpich_spawns_on_many_hosts() {
    let Some(network) = Network::new(77) else {
        return;
    };
    let script = network.folder().join("spawn.py");
    fs::write(&script, SCRIPT).unwrap();
    let python = python();
    for arity in [1, 2] {
        let words = [python.to_str().unwrap(), script.to_str().unwrap()];
        let output = network
            .job(
                arity,
                &[&["--timeout", "120", "--detect", "10"], &words[..]].concat(),
            )
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let expected: String = (1..=HOSTS)
            .map(|host| format!("host{host} began 28\nhost{host} spawned 28\n"))
            .collect();
        assert_eq!(text(&output.stdout), expected);
    }
}
