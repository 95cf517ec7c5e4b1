//! Ranks that are killed come back, and take part again.
//!
//! Words: the number of steps, and who is killed when:
//!
//! - `RANK.INCARNATION:STEP`: before the call of that step; after it with a `+` at the end; before it and together with
//!   its whole host, agent and all, with a `!`.
//! - `random:SEED:MILLISECONDS:LIVES`: the first processes of each rank, so many of them, at random moments within this
//!   time, but for one rank, or nobody might be left who has the state.
//! - `lost:RANK`: by somebody else, together with its host, once rank 0 has said that all have joined.
//!
//! Each step is an allreduce in which each rank has a hexadecimal digit of its own. It ends when so many steps are done
//! and all ranks are back whose hosts are not lost, and each rank prints the sums of all steps.

use std::{env, error::Error, fs, os::unix::process::parent_id, process, thread, time::Duration};

use ropewalk_reduce::{BootstrapError, Job, OnLoss, Rank, ReduceOptions, Sum};

const STEPS_MAX: usize = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = env::args().skip(1);
    let steps: usize = words.next().ok_or("how many steps?")?.parse()?;
    let kills: Vec<String> = words.collect();
    let life: u32 = env::var("ROPEWALK_INCARNATION").map_or(Ok(0), |life| life.parse())?;
    if life > 0 {
        die_at_random(&kills, life)?;
    }
    let mut job = match Job::from_env() {
        Err(error @ BootstrapError::JobOver { .. }) => {
            println!("late: {error}");
            return Ok(());
        }
        joined => joined?,
    };
    if life == 0 {
        // One that dies before all have joined would end the job.
        job.world().barrier(&ReduceOptions::default())?.get()?;
        if job.rank() == Rank(0) && kills.iter().any(|word| word.starts_with("lost:")) {
            println!("joined");
        }
        die_at_random(&kills, life)?;
    }
    let options = ReduceOptions {
        on_loss: OnLoss::Exclude,
        ..ReduceOptions::default()
    };
    let (own, size) = (job.rank(), job.size());
    // The number of steps that are done, and the sum of each.
    let mut state = vec![0_u64; STEPS_MAX + 1];
    let mut group = job.world();
    let mut missing = Vec::new();
    let hosts_lost = kills.iter().filter(|word| word.ends_with('!')).count();
    let ranks_lost = kills.iter().filter(|word| word.starts_with("lost:")).count();
    let gone_for_good = ranks_lost + hosts_lost * env::var("LOCAL_WORLD_SIZE")?.parse::<usize>()?;
    let mut is_in = !job.has_come_back();
    loop {
        // A call that is under way ends as it would otherwise.
        let length = if state[0].is_multiple_of(4) { 20_000 } else { 1 };
        let under_way = match is_in {
            true => Some(group.allreduce(vec![1_u64 << (4 * own.0); length], Sum, &options)?),
            false => None,
        };
        let admitted = job.admit()?;
        is_in = true;
        if let Some(under_way) = under_way {
            let outcome = under_way.get()?;
            let sum = outcome.value.ok_or("all get the sum")?;
            assert!(
                is_exact(&sum[0]) && sum.iter().all(|element| *element == sum[0]),
                "something is counted twice: {:x}",
                sum[0]
            );
            if !outcome.receipt.excluded.is_empty() && admitted.is_empty() {
                group = group.without(&outcome.receipt.excluded)?;
                missing.extend(outcome.receipt.excluded);
            }
        }
        if !admitted.is_empty() {
            let done = state[0];
            group = job.world().without(&job.lost())?;
            missing = job.lost();
            state = job.share_state(state)?;
            assert!(
                admitted.contains(&own) || state[0] == done,
                "{own}: {} steps, not {done}",
                state[0]
            );
        }
        let step = state[0] as usize;
        if step >= steps && missing.len() == gone_for_good || step == STEPS_MAX {
            break;
        }
        let due = |end: &str| kills.contains(&format!("{own}.{life}:{step}{end}"));
        if due("") {
            kill_itself()?;
        }
        if due("!") {
            kill_host()?;
        }
        let call = group.allreduce(vec![1_u64 << (4 * own.0)], Sum, &options)?;
        if due("+") {
            kill_itself()?;
        }
        let outcome = call.get()?;
        state[step + 1] = outcome.value.ok_or("all get the sum")?[0];
        state[0] += 1;
        if !outcome.receipt.excluded.is_empty() {
            group = group.without(&outcome.receipt.excluded)?;
            missing.extend(outcome.receipt.excluded);
        }
        thread::sleep(Duration::from_millis(2));
    }
    let sums = &state[1..=state[0] as usize];
    assert!(sums.iter().all(is_exact), "something is counted twice");
    println!("{} of {size}: {}", size - missing.len() as u32, runs(sums));
    job.finalize()?;
    Ok(())
}

/// Says if each rank is counted once at most.
fn is_exact(sum: &u64) -> bool {
    (0..16).all(|digit| sum >> (4 * digit) & 15 < 2)
}

/// Sums that follow each other are told once, with their number.
fn runs(sums: &[u64]) -> String {
    let runs = sums.chunk_by(|one, next| one == next);
    let told: Vec<String> = runs.map(|run| format!("{:x}*{}", run[0], run.len())).collect();
    told.join(" ")
}

/// Lets a process end at a random moment, if the words ask for that.
fn die_at_random(words: &[String], life: u32) -> Result<(), Box<dyn Error>> {
    let words = words.iter().find_map(|word| word.strip_prefix("random:"));
    let Some(words) = words else { return Ok(()) };
    let numbers = words
        .split(':')
        .map(str::parse)
        .collect::<Result<Vec<u64>, _>>()?;
    let [seed, within_ms, lives] = numbers[..] else {
        return Err("random:SEED:MILLISECONDS:LIVES".into());
    };
    let rank: u64 = env::var("PMI_RANK")?.parse()?;
    let size: u64 = env::var("PMI_SIZE")?.parse()?;
    if u64::from(life) < lives && rank != seed % size {
        let mut state = seed << 32 | rank << 16 | u64::from(life);
        // SplitMix64.
        state = state.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let moment = Duration::from_micros((state ^ state >> 31) % (1000 * within_ms));
        thread::spawn(move || {
            thread::sleep(moment);
            let _ = kill_itself();
        });
    }
    Ok(())
}

/// Ends the agent of this host, and all its ranks.
fn kill_host() -> Result<(), Box<dyn Error>> {
    let agent = parent_id();
    let children = fs::read_to_string(format!("/proc/{agent}/task/{agent}/children"))?;
    let own = env::current_exe()?;
    // Agents of other hosts may be among them.
    let is_rank = |child: &&str| fs::read_link(format!("/proc/{child}/exe")).is_ok_and(|exe| exe == own);
    process::Command::new("kill")
        .args(["-9", &agent.to_string()])
        .args(children.split_whitespace().filter(is_rank))
        .status()?;
    loop {
        thread::park();
    }
}

/// Ends this process as a crash of its host's memory would: nothing is said to anybody.
fn kill_itself() -> Result<(), Box<dyn Error>> {
    // Two threads may come to their ends at once: the later one's command finds no such process.
    process::Command::new("kill")
        .args(["-9", &process::id().to_string()])
        .stderr(process::Stdio::null())
        .status()?;
    loop {
        thread::park();
    }
}
