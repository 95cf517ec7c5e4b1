//! Batch scripts that start their job again when it has saved.

use std::{
    env, fs,
    path::Path,
    process::{Command, Output},
    thread::sleep,
    time::{Duration, Instant},
};

use super::{
    Network, ROPEWALK,
    rig::{example, write_script},
    slurm::Slurm,
    text,
};

const PATIENCE: Duration = Duration::from_secs(240);
/// So many steps with a pause of so many milliseconds take longer than an allocation of a minute, and not two.
const STEPS: &str = "3000";
const PAUSE: &str = "20";

/// Waits until a file holds some words, and returns what it holds.
fn await_words(file: &Path, words: &str) -> String {
    await_count(file, words, 1)
}

/// Waits until a file holds some words so often, and returns what it holds.
fn await_count(file: &Path, words: &str, count: usize) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = fs::read_to_string(file).unwrap_or_default();
        if found.matches(words).count() >= count {
            return found;
        }
        assert!(Instant::now() < deadline, "{words:?} does not come: {found}");
        sleep(Duration::from_millis(100));
    }
}

/// The path of a batch script of `docs/recipes/slurm`.
fn recipe(name: &str) -> String {
    format!("{}/../../docs/recipes/slurm/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Runs sbatch with an environment in which batch scripts find the command.
fn submitted(slurm: &Slurm, network: &Network, words: &[&str]) -> Output {
    let folder = Path::new(ROPEWALK).parent().unwrap().display();
    let path = format!("PATH={folder}:{}", env::var("PATH").unwrap());
    let interface = format!("HYDRA_IFACE={}", network.address(11));
    let submitted = slurm.output(
        network,
        &[&["env", path.as_str(), interface.as_str()], words].concat(),
    );
    assert!(submitted.status.success(), "{submitted:?}");
    submitted
}

/// A batch script starts its job again when `ropewalk run` ends with 75, here twice. First the signal comes as by
/// `--signal=USR1@60`: Slurm sends it to the agent that srun has started on the second host, and the save is that of
/// both. In the next allocation it comes as by `--signal=B:USR1@60`: the script gets it, and hands it on. The third
/// allocation ends the work. A job beside it gets no signal, has a minute and needs more: it saves before its time is
/// over, and the next allocation ends with the result of an undisturbed run. Before both, a job without checkpoints
/// runs on all hosts of its allocation.
#[test]
fn a_batch_script_requeues_itself() {
    let Some(network) = Network::new(78) else {
        return;
    };
    let slurm = Slurm::start(&network);
    let output = network.folder().join("plain").display().to_string();
    let words = [
        "sbatch",
        "--wait",
        "-o",
        &output,
        &recipe("plain.sh"),
        "-l",
        "hostname",
    ];
    submitted(&slurm, &network, &words);
    let said = fs::read_to_string(&output).unwrap();
    assert!(said.contains("[0] host1") && said.contains("[1] host2"), "{said}");

    let program = env::current_exe().unwrap();
    let program = program.ancestors().nth(2).unwrap().join("examples/saving_ranks");
    let undisturbed = Command::new(ROPEWALK)
        .args(["run", "-n", "1", "--checkpoint"])
        .arg(network.folder().join("undisturbed-saves"))
        .arg(&program)
        .args([STEPS, STEPS, "0"])
        .output()
        .unwrap();
    assert!(undisturbed.status.success(), "{undisturbed:?}");
    // This Slurm sends signals to all processes of a step. One that knows control groups sends them to what srun has
    // started.
    let deaf = network.folder().join("deaf");
    let script = format!(
        "#!/bin/sh\ntrap '' USR1\necho a rank begins\nexec {} \"$@\"\n",
        program.display()
    );
    write_script(&deaf, &script);
    let program = deaf.display();
    let submit = |name: &str, options: &[&str], run: &str| {
        let [output, saves] =
            [name.to_owned(), format!("{name}-saves")].map(|name| network.folder().join(name));
        let script = recipe("requeue.sh");
        let [path, directory] = [&output, &saves].map(|path| path.display().to_string());
        let words = ["sbatch", "--parsable", "-o", &path];
        let run = ["--grace", "5"].into_iter().chain(run.split(' '));
        let run: Vec<_> = [script.as_str(), &directory].into_iter().chain(run).collect();
        let submitted = submitted(&slurm, &network, &[&words[..], options, &run].concat());
        (text(&submitted.stdout).trim().to_owned(), output, saves)
    };
    let run = format!("-n 1 {program} {STEPS} advised {PAUSE}");
    // A signal that changes nothing takes the place of the script's.
    let options = ["-w", "host1", "-N1", "--time=1", "--signal=CONT"];
    let (_, limited, _) = submit("limited", &options, &run);
    let run = format!("-n 2 {program} 6000 advised 2");
    let (job, warned, saves) = submit("warned", &[], &run);
    let first = saves.join("generation-0000000001/rank-00001.manifest");
    let deadline = Instant::now() + PATIENCE;
    while !first.exists() {
        let said = fs::read_to_string(&warned);
        assert!(Instant::now() < deadline, "nothing is saved: {said:?}");
        sleep(Duration::from_millis(50));
    }
    let tell = |receiver: &[&str]| {
        let words = [&["scancel", "--signal=USR1"], receiver, &[&job]].concat();
        let told = slurm.output(&network, &words);
        assert!(told.status.success(), "{told:?}");
    };
    tell(&[]);
    let said = await_words(&warned, "ropewalk run ended with 75");
    assert!(
        said.contains("ended by signal 10 (SIGUSR1); it has saved"),
        "{said}"
    );
    // Those of the first allocation, and those of the second.
    await_count(&warned, "a rank begins", 4);
    tell(&["--batch"]);
    let said = await_words(&warned, "ropewalk run ended with 0");
    assert_eq!(said.matches("ropewalk run ended with 75").count(), 2, "{said}");
    assert_eq!(
        said.matches("attempt 1 starts from generation").count(),
        2,
        "{said}"
    );
    for rank in [0, 1] {
        let done = said.matches(&format!("rank {rank} has come to")).count();
        assert_eq!(done, 1, "{said}");
    }
    let said = await_words(&limited, "ropewalk run ended with");
    assert!(said.contains("ropewalk run ended with 75"), "{said}");
    assert!(
        said.contains("the time of the allocation was nearly over"),
        "{said}"
    );
    let said = await_words(&limited, "ropewalk run ended with 0");
    assert!(
        said.contains(&text(&undisturbed.stdout)),
        "{undisturbed:?} {said}"
    );
}

/// `scancel` of a batch script that executes `ropewalk run` lets ranks save: Slurm tells the launcher and the agents of
/// both hosts to end, and the job ends with a save that was not there before and that of all ranks is whole.
#[test]
fn a_cancelled_batch_script_saves() {
    let Some(network) = Network::new(84) else {
        return;
    };
    let slurm = Slurm::start(&network);
    let [output, saves] = ["output", "saves"].map(|name| network.folder().join(name));
    let [path, directory] = [&output, &saves].map(|path| path.display().to_string());
    let script = recipe("plain.sh");
    let words = ["sbatch", "--parsable", "--no-requeue", "-o", &path, &script];
    let run = [
        "--on-failure",
        "restart",
        "--checkpoint",
        &directory,
        "--grace",
        "8",
    ];
    // This Slurm sends signals to all processes of a step.
    let program = example("saving_ranks").display().to_string();
    let ranks = [
        "-n",
        "2",
        "env",
        "--ignore-signal=TERM",
        &program,
        "1000000000",
        "advised",
        "2",
    ];
    let submitted = submitted(&slurm, &network, &[&words[..], &run, &ranks].concat());
    let job = text(&submitted.stdout).trim().to_owned();
    let generations = || {
        let entries = fs::read_dir(&saves).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("generation-")).max()
    };
    let whole = |generation: &str| {
        (0..2).all(|rank| {
            saves
                .join(generation)
                .join(format!("rank-{rank:05}.manifest"))
                .exists()
        })
    };
    let deadline = Instant::now() + PATIENCE;
    let first = loop {
        if let Some(first) = generations().filter(|first| whole(first)) {
            break first;
        }
        let said = fs::read_to_string(&output);
        assert!(Instant::now() < deadline, "nothing is saved: {said:?}");
        sleep(Duration::from_millis(50));
    };
    let told = slurm.output(&network, &["scancel", &job]);
    assert!(told.status.success(), "{told:?}");
    let said = await_words(&output, "ended by signal 15 (SIGTERM)");
    assert!(said.contains("; it has saved"), "{said}");
    let last = generations().unwrap();
    assert!(last > first && whole(&last), "{first} {last}: {said}");
}
