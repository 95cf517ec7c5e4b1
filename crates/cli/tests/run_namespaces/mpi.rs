//! Unmodified programs of MPICH and Open MPI over several hosts.

use std::process::Output;

use super::{
    network::{HOSTS, Network},
    rig::{compile_mpi, libraries},
};

pub(crate) fn ring_is_whole(output: &Output, ranks: u32) {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let sum = ranks * (ranks + 1) / 2;
    for rank in 0..ranks {
        let line = format!("rank {rank} of {ranks}: sum {sum}");
        assert!(text.lines().any(|found| found == line), "no {line:?} in {text}");
    }
}

/// Programs of MPICH and of Open MPI run on four hosts, with one rank on each and with two, in a chain of agents and in
/// a tree.
#[test]
fn mpi_programs_run_on_many_hosts() {
    let Some(network) = Network::new(74) else {
        return;
    };
    for compiler in ["mpicc.mpich", "mpicc.openmpi"] {
        let program = compile_mpi(compiler, "ring.c", network.folder());
        for (arity, ranks_per_host) in [(1, 1), (2, 2)] {
            let ranks = ranks_per_host * u32::from(HOSTS);
            let words = ["-n", &ranks.to_string(), "-ppn", &ranks_per_host.to_string()];
            let mut job = network.job(arity, &[&words[..], &[program.to_str().unwrap()]].concat());
            let output = job.env("ROPEWALK_LIBRARY_DIR", libraries()).output().unwrap();
            ring_is_whole(&output, ranks);
        }
    }
}
