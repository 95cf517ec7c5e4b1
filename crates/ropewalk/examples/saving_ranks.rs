//! Ranks that compute something that takes a while and save it together every so many steps: `saving_ranks STEPS EVERY`.
//! At the end each prints what it has come to, which does not depend on how often it was started.

use std::{env, error::Error, fs, thread::sleep, time::Duration};

use ropewalk::checkpoint::{Alone, Store, StoreOptions, directory_of_job};

fn main() -> Result<(), Box<dyn Error>> {
    let number = |text: Option<String>| -> Result<u64, Box<dyn Error>> {
        Ok(text
            .ok_or("saving_ranks STEPS EVERY, in a job with --checkpoint")?
            .parse()?)
    };
    let mut words = env::args().skip(1);
    let (steps, every) = (number(words.next())?, number(words.next())?);
    let (rank, ranks) = (
        number(env::var("RANK").ok())?,
        number(env::var("WORLD_SIZE").ok())?,
    );
    let directory = directory_of_job().ok_or("there is no --checkpoint DIR")?;
    let mut store = Store::open(StoreOptions {
        rank: rank as u32,
        ranks: ranks as u32,
        ..StoreOptions::new(directory)
    })?;
    let restored = store.restore(&mut Alone)?;
    let (mut step, mut state) = match (restored.from, restored.folder) {
        (Some(held), Some(folder)) => (held.step, fs::read(folder.join("deep/state"))?),
        _ => (0, vec![rank as u8; STATE_BYTES]),
    };
    while step < steps {
        step += 1;
        compute(&mut state, step);
        sleep(Duration::from_millis(1));
        if step % every == 0 {
            let save = store.begin(step)?;
            fs::create_dir_all(save.folder().join("deep"))?;
            fs::create_dir(save.folder().join("empty"))?;
            fs::write(save.folder().join("deep/state"), &state)?;
            store.commit(save)?;
            store.retire()?;
        }
    }
    println!("rank {rank} has come to {}", blake3::hash(&state));
    Ok(())
}

fn compute(state: &mut [u8], step: u64) {
    let mut carry = step as u8;
    for byte in state.iter_mut().step_by(97) {
        carry = byte.wrapping_mul(13).wrapping_add(carry);
        *byte = carry;
    }
}

/// More than goes in one piece from host to host.
const STATE_BYTES: usize = 5 << 20;
