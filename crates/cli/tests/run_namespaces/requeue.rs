//! Batch scripts that start their job again when it has saved.

use std::{
    env, fs,
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use super::{Network, ROPEWALK, slurm::Slurm, text};

const PATIENCE: Duration = Duration::from_secs(240);

/// Waits until a file holds some words, and returns what it holds.
fn await_words(file: &Path, words: &str) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = fs::read_to_string(file).unwrap_or_default();
        if found.contains(words) {
            return found;
        }
        assert!(Instant::now() < deadline, "{words:?} does not come: {found}");
        sleep(Duration::from_millis(100));
    }
}

/// A batch script starts its job again when `ropewalk run` ends with 75. The signal comes as by `--signal=USR1@60`: Slurm sends
/// it to the agent that srun has started on the second host, and the save is that of both. The job is done in the second
/// allocation. A job beside it is never told anything and saves before its allocation of a minute is over.
#[test]
fn a_batch_script_requeues_itself() {
    let Some(network) = Network::new(78) else {
        return;
    };
    let slurm = Slurm::start(&network);
    let program = env::current_exe().unwrap();
    let program = program.ancestors().nth(2).unwrap().join("examples/saving_ranks");
    // This Slurm sends signals to all processes of a step. One that knows control groups sends them to what srun has started.
    let program = format!("env --ignore-signal=USR1 {}", program.display());
    let submit = |name: &str, options: &[&str], run: &str| {
        let folder = network.folder();
        let (script, output) = (folder.join(format!("{name}.sh")), folder.join(name));
        let saves = folder.join(format!("{name}-saves"));
        let text_of_script = format!(
            "#!/bin/sh\n\
             {ROPEWALK} run -iface {} --grace 5 --on-failure restart --checkpoint {} {run}\n\
             code=$?\n\
             echo \"the code is $code\"\n\
             [ $code = 75 ] && [ {name} = warned ] && scontrol requeue $SLURM_JOB_ID\n\
             exit $code\n",
            network.address(11),
            saves.display(),
        );
        fs::write(&script, text_of_script).unwrap();
        let (script, path) = (script.display().to_string(), output.display().to_string());
        let words = ["sbatch", "--parsable", "--open-mode=append", "-o", &path];
        let submitted = slurm.output(&network, &[&words[..], options, &[&script]].concat());
        assert!(submitted.status.success(), "{submitted:?}");
        (text(&submitted.stdout).trim().to_owned(), output, saves)
    };
    let run = format!("-n 1 {program} 1000000000 advised");
    let (_, limited, _) = submit("limited", &["-w", "host1", "-n1", "--time=1"], &run);
    let run = format!("-n 2 {program} 2000 advised 2");
    let options = ["-N2", "-n2", "--ntasks-per-node=1", "--requeue"];
    let (job, warned, saves) = submit("warned", &options, &run);
    let first = saves.join("generation-0000000001/rank-00001.manifest");
    let deadline = Instant::now() + PATIENCE;
    while !first.exists() {
        let said = fs::read_to_string(&warned);
        assert!(Instant::now() < deadline, "nothing is saved: {said:?}");
        sleep(Duration::from_millis(50));
    }
    let told = slurm.output(&network, &["scancel", "--signal=USR1", &job]);
    assert!(told.status.success(), "{told:?}");
    let said = await_words(&warned, "the code is 75");
    assert!(
        said.contains("ended by signal 10 (SIGUSR1); it has saved"),
        "{said}"
    );
    let said = await_words(&warned, "the code is 0");
    assert!(said.contains("attempt 1 starts from generation"), "{said}");
    for rank in [0, 1] {
        let done = said.matches(&format!("rank {rank} has come to")).count();
        assert_eq!(done, 1, "{said}");
    }
    let said = await_words(&limited, "the code is");
    assert!(said.contains("the code is 75"), "{said}");
    assert!(
        said.contains("the time of the allocation was nearly over"),
        "{said}"
    );
}
