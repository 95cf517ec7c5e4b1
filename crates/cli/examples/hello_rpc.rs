//! Calls a procedure of another endpoint, with a deadline.

use std::{error::Error, time::Duration};

use ropewalk::{
    names::{Incarnation, JobId, Rank},
    rpc::{Endpoint, EndpointOptions, Engine, Identity, JobKey, Procedure, Role, thread::Driver},
};

struct Add;

impl Procedure for Add {
    const NAME: &'static str = "hello.add";
    type Input = (u32, u32);
    type Output = u32;
}

fn main() -> Result<(), Box<dyn Error>> {
    let key = JobKey::generate()?; // All processes that talk to each other share it.
    let engine = |rank| {
        let identity = Identity {
            role: Role::Rank,
            rank: Rank(rank),
            incarnation: Incarnation(0),
        };
        Endpoint::bind(EndpointOptions::new(JobId([7; 16]), key.clone(), identity)).map(Engine::new)
    };
    let mut target = engine(0)?;
    target.serve::<Add>(|_caller, (a, b)| Ok(a + b));
    let address = target.address().clone();
    let (_driver, _handle) = Driver::spawn(target)?;

    let mut origin = engine(1)?;
    let call = origin.call::<Add>(&address, &(2, 3), Duration::from_secs(5))?;
    println!("2 + 3 = {}", origin.block_on(call)?);
    Ok(())
}
