//! A process of a job that meets its like by our PMI client. Test programs are such processes themselves, with [`ROLE`]
//! set.

use std::{env, time::Duration};

use ropewalk::pmi::{Client, Dialect};

/// Says to a test program that it is a process, and in which dialect: `pmi1`, `pmi2`, or as it finds best.
pub(crate) const ROLE: &str = "ROPEWALK_TEST_ROLE";

/// Tells the others something, hears it of them, and says whom it met.
pub(crate) fn meet() {
    let client = match env::var(ROLE).unwrap().as_str() {
        "pmi1" => Client::from_env_speaking(Dialect::Pmi1),
        "pmi2" => Client::from_env_speaking(Dialect::Pmi2),
        _ => Client::from_env(),
    };
    let client = client.unwrap().unwrap();
    client.set_timeout(Duration::from_secs(30));
    let key = |rank: u32| format!("rank-{rank}");
    client
        .put(&key(client.rank()), format!("0x{:x}", client.rank()))
        .unwrap();
    client.fence().unwrap();
    let mut met = "met".to_owned();
    for rank in 0..client.size() {
        assert_eq!(client.get(&key(rank)).unwrap(), Some(format!("0x{rank:x}")));
        met.push_str(&format!(" {rank}"));
    }
    assert_eq!(client.get("nobody").unwrap(), None);
    client.finalize().unwrap();
    println!("{met}");
}
