//! MPI_Init and MPI_Finalize of MPICH.

use std::{ffi::OsString, fs, process::Command};

use anyhow::{Context, bail};

use super::Arguments;
use crate::manager::{Manager, medians_ms};

const SOURCE: &str = "\
#include <mpi.h>
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    return MPI_Finalize();
}
";

pub(super) fn measure(arguments: &Arguments) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (source, program) = (folder.path().join("init.c"), folder.path().join("init"));
    fs::write(&source, SOURCE)?;
    let status = Command::new("mpicc.mpich")
        .arg("-o")
        .args([&program, &source])
        .status();
    if !status
        .context("mpicc.mpich is missing: install the Debian package libmpich-dev")?
        .success()
    {
        bail!("mpicc.mpich failed");
    }
    println!("| ranks that call MPI_Init and MPI_Finalize | ropewalk, ms | Hydra, ms | ropewalk / Hydra |");
    println!("|---|---|---|---|");
    for ranks in &arguments.ranks {
        let words: [OsString; 3] = [
            "-n".into(),
            ranks.to_string().into(),
            program.clone().into_os_string(),
        ];
        let [ours, hydra] = medians_ms(
            arguments.repetitions,
            [&|| Manager::Ropewalk.run(&words), &|| Manager::Hydra.run(&words)],
        )?;
        println!("| {ranks} | {ours:.0} | {hydra:.0} | {:.2} |", ours / hydra);
    }
    Ok(())
}
