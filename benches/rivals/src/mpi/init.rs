//! MPI_Init and MPI_Finalize: MPICH's below ropewalk, Hydra and srun, and Open MPI's below its own mpirun.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail, ensure};
use serde::Serialize;

use super::Arguments;
use crate::{
    manager::{Manager, in_turns},
    median,
    network::Network,
    slurm::Slurm,
};

const SOURCE: &str = "\
#include <mpi.h>
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    return MPI_Finalize();
}
";

/// The times of one contestant.
#[derive(Serialize)]
struct Row {
    manager: &'static str,
    hosts: u8,
    ranks: u32,
    /// From the start of the command to its end.
    seconds: Vec<f64>,
}

/// The programs, one for each library.
struct Programs {
    mpich: PathBuf,
    open_mpi: Option<PathBuf>,
    _folder: tempfile::TempDir,
}

/// Ranks on this host.
pub(super) fn measure(arguments: &Arguments) -> anyhow::Result<()> {
    let programs = Programs::compile()?;
    let slurm = Slurm::start()
        .inspect_err(|error| eprintln!("ropewalk-rivals: there is no srun: {error:#}"))
        .ok();
    if !arguments.json {
        println!("| ranks that call MPI_Init and MPI_Finalize | by | ms | ropewalk / it |");
        println!("|---|---|---|---|");
    }
    for &ranks in &arguments.ranks {
        let words: [OsString; 3] = [
            "-n".into(),
            ranks.to_string().into(),
            programs.mpich.clone().into_os_string(),
        ];
        let ours = || Manager::Ropewalk.run(&words);
        let hydra = || Manager::Hydra.run(&words);
        let mut contestants: Vec<(&'static str, Contestant<'_>)> =
            vec![("ropewalk", Box::new(ours)), ("Hydra", Box::new(hydra))];
        if let Some(program) = &programs.open_mpi {
            contestants.push(("mpirun", Box::new(move || run(mpirun(ranks, program)))));
        }
        if let Some(slurm) = &slurm {
            let program = &programs.mpich;
            let srun = move || {
                let mut command = slurm.srun(ranks);
                command.arg(program);
                run(command)
            };
            contestants.push(("srun", Box::new(srun)));
        }
        show(arguments, (1, ranks), &contestants)?;
    }
    Ok(())
}

/// Ranks on several hosts, as many on each.
pub(super) fn measure_on_hosts(arguments: &Arguments) -> anyhow::Result<()> {
    let programs = Programs::compile()?;
    let network = Network::new(arguments.hosts)?;
    if !arguments.json {
        println!("| hosts, ranks that call MPI_Init and MPI_Finalize | by | ms | ropewalk / it |");
        println!("|---|---|---|---|");
    }
    let few = Some(4).filter(|few| *few < arguments.hosts);
    for hosts in few.into_iter().chain([arguments.hosts]) {
        for &ranks in &arguments.ranks {
            if !ranks.is_multiple_of(u32::from(hosts)) {
                continue;
            }
            let run = |manager: Manager| {
                let on_each = (ranks / u32::from(hosts)).to_string();
                let mut words = network.options(manager, hosts);
                words.extend(["-ppn", &on_each, "-n", &ranks.to_string()].map(OsString::from));
                words.push(programs.mpich.clone().into_os_string());
                manager.run(&words)
            };
            let contestants: [(&'static str, Contestant<'_>); 2] = [
                ("ropewalk", Box::new(|| run(Manager::Ropewalk))),
                ("Hydra", Box::new(|| run(Manager::Hydra))),
            ];
            show(arguments, (hosts, ranks), &contestants)?;
        }
    }
    Ok(())
}

type Contestant<'a> = Box<dyn Fn() -> anyhow::Result<()> + 'a>;

fn show(
    arguments: &Arguments,
    (hosts, ranks): (u8, u32),
    contestants: &[(&'static str, Contestant<'_>)],
) -> anyhow::Result<()> {
    let runs: Vec<&dyn Fn() -> anyhow::Result<()>> = contestants.iter().map(|(_, run)| &**run as _).collect();
    let times = in_turns(arguments.repetitions, &runs)?;
    let ours = median(times[0].clone());
    for ((manager, _), seconds) in contestants.iter().zip(times) {
        if arguments.json {
            let row = Row {
                manager,
                hosts,
                ranks,
                seconds,
            };
            println!("{}", serde_json::to_string(&row)?);
            continue;
        }
        let time = median(seconds);
        println!(
            "| {hosts}, {ranks} | {manager} | {:.0} | {:.2} |",
            time * 1e3,
            ours / time
        );
    }
    Ok(())
}

impl Programs {
    fn compile() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let source = folder.path().join("init.c");
        fs::write(&source, SOURCE)?;
        let compile = |compiler: &str| -> anyhow::Result<PathBuf> {
            let program = folder.path().join(compiler);
            let status = Command::new(compiler)
                .arg("-o")
                .args([&program, &source])
                .status();
            let status = status
                .with_context(|| format!("{compiler} is missing: install libmpich-dev, libopenmpi-dev"))?;
            ensure!(status.success(), "{compiler} failed");
            Ok(program)
        };
        let mpich = compile("mpicc.mpich")?;
        let open_mpi = compile("mpicc.openmpi")
            .inspect_err(|error| eprintln!("ropewalk-rivals: without Open MPI: {error:#}"))
            .ok();
        Ok(Self {
            mpich,
            open_mpi,
            _folder: folder,
        })
    }
}

/// Open MPI's own command. It refuses root, and more ranks than processors, unless it is told.
fn mpirun(ranks: u32, program: &Path) -> Command {
    let mut command = Command::new("mpirun.openmpi");
    command
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .args(["--oversubscribe", "-n", &ranks.to_string()])
        .arg(program);
    command
}

fn run(mut command: Command) -> anyhow::Result<()> {
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}
