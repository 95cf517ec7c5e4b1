//! Ranks that compute something that takes a while and save it together: `saving_ranks STEPS EVERY [PAUSE]`
//! every so many steps, `saving_ranks STEPS advised [PAUSE]` when an advisor in rank 0 says so. After each
//! step they sleep for so many milliseconds, one by default. At the end each prints what it has come to,
//! which does not depend on how often it was started.

use std::{env, error::Error, fs, thread::sleep, time::Duration};

use ropewalk::{
    checkpoint::{
        AdvisorOptions, Alone, Level, RunAdvisor, SharedDirectory, Store, StoreOptions, decided_of_job,
        directory_of_job, start_of_job,
    },
    pmi::client::Client,
};

fn main() -> Result<(), Box<dyn Error>> {
    let number = |text: Option<String>| -> Result<u64, Box<dyn Error>> {
        Ok(text
            .ok_or("saving_ranks STEPS EVERY|advised [PAUSE], in a job with --checkpoint")?
            .parse()?)
    };
    let mut words = env::args().skip(1);
    let (steps, every) = (number(words.next())?, words.next());
    let pause = Duration::from_millis(words.next().map_or(Ok(1), |text| text.parse())?);
    let (rank, ranks) = (
        number(env::var("RANK").ok())?,
        number(env::var("WORLD_SIZE").ok())?,
    );
    let directory = directory_of_job().ok_or("there is no --checkpoint DIR")?;
    let mut when = match every.as_deref() {
        Some("advised") => When {
            every: ADVISED_EVERY,
            advised: Some(Advised::new(rank)?),
        },
        every => When {
            every: number(every.map(str::to_owned))?,
            advised: None,
        },
    };
    let mut store = Store::open(StoreOptions {
        rank: rank as u32,
        ranks: ranks as u32,
        ..StoreOptions::new(&directory)
    })?;
    let restored = match decided_of_job() {
        Some(_) => store.restore(&mut Alone)?,
        None => {
            let start = start_of_job()
                .ok_or("nobody says which start this is")?
                .to_string();
            let (rank, ranks) = (rank as u32, ranks as u32);
            store.restore(&mut SharedDirectory::new(
                directory, &start, rank, ranks, PATIENCE,
            ))?
        }
    };
    let (mut step, mut state) = match (restored.from, restored.folder) {
        (Some(held), Some(folder)) => {
            let state = fs::read(folder.join("deep/state"))?;
            when.tell(RunAdvisor::restored);
            (held.step, state)
        }
        _ => (0, vec![rank as u8; STATE_BYTES]),
    };
    while step < steps {
        step += 1;
        compute(&mut state, step);
        sleep(pause);
        let Some(level) = when.level(step)? else { continue };
        when.tell(|advisor| advisor.save_begin(level));
        let mut save = store.begin(step)?;
        save.set_level(level);
        fs::create_dir_all(save.folder().join("deep"))?;
        fs::create_dir(save.folder().join("empty"))?;
        fs::write(save.folder().join("deep/state"), &state)?;
        store.commit(save)?;
        when.tell(|advisor| advisor.save_end(level));
        store.retire()?;
    }
    if let Some(Advised { pmi, advisor }) = when.advised {
        advisor.into_iter().for_each(RunAdvisor::finish);
        pmi.finalize()?;
    }
    println!("rank {rank} has come to {}", blake3::hash(&state));
    Ok(())
}

/// When to save: every so many steps, or if rank 0 says so then.
struct When {
    every: u64,
    advised: Option<Advised>,
}

/// All ranks do what rank 0 says.
struct Advised {
    pmi: Client,
    advisor: Option<RunAdvisor>,
}

impl When {
    /// At which level to save after a step, if at all.
    fn level(&mut self, step: u64) -> Result<Option<Level>, Box<dyn Error>> {
        match &mut self.advised {
            _ if !step.is_multiple_of(self.every) => Ok(None),
            None => Ok(Some(Level::Full)),
            Some(advised) => advised.level(step),
        }
    }

    fn tell(&mut self, what: impl FnOnce(&mut RunAdvisor)) {
        if let Some(advisor) = self.advised.as_mut().and_then(|advised| advised.advisor.as_mut()) {
            what(advisor);
        }
    }
}

impl Advised {
    fn new(rank: u64) -> Result<Self, Box<dyn Error>> {
        let pmi = Client::from_env()?.ok_or("there is no process manager")?;
        let advisor = match rank {
            0 => Some(RunAdvisor::start_in_job(&AdvisorOptions::default())?),
            _ => None,
        };
        Ok(Self { pmi, advisor })
    }

    fn level(&mut self, step: u64) -> Result<Option<Level>, Box<dyn Error>> {
        let key = format!("advice-{step}");
        if let Some(advisor) = &mut self.advisor {
            let advice = advisor.step_end();
            let word = match advice.decision.save {
                true => advice.level.to_string(),
                false => "no".to_owned(),
            };
            self.pmi.put(&key, word)?;
        }
        self.pmi.fence()?;
        let word = self.pmi.get(&key)?.ok_or("rank 0 has said nothing")?;
        Ok(Level::parse(&word))
    }
}

fn compute(state: &mut [u8], step: u64) {
    let mut carry = step as u8;
    for byte in state.iter_mut().step_by(97) {
        carry = byte.wrapping_mul(13).wrapping_add(carry);
        *byte = carry;
    }
}

/// How long ranks that share a directory wait for each other.
const PATIENCE: Duration = Duration::from_secs(60);

/// More than goes in one piece from host to host.
const STATE_BYTES: usize = 5 << 20;

/// So many steps are one to the advisor: to agree takes a while.
const ADVISED_EVERY: u64 = 5;
