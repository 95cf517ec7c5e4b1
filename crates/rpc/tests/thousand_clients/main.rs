//! A thousand clients in real processes, dying at random. The server is a process of its own, too, since it
//! looks at its descriptors and its memory.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

#[path = "../behaviours/listed.rs"]
mod listed;
mod live_heap;

use std::{
    env, fs,
    process::{Child, Command},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use ropewalk_names::{Incarnation, JobId, Rank};
use ropewalk_rpc::{
    Address, Buffer, Call, Endpoint, EndpointOptions, Engine, Identity, JobKey, Procedure, RegionHandle,
    Responder, Role, Transfer, Transports,
};
use rustix::{
    fs::{FlockOperation, flock},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

/// Is answered when all have come.
struct Join;

impl Procedure for Join {
    const NAME: &'static str = "test.join";
    type Input = ();
    /// The region that the server exposes.
    type Output = RegionHandle;
}

/// Has the server pull what the client exposes, and send as much back.
struct Exchange;

impl Procedure for Exchange {
    const NAME: &'static str = "test.exchange";
    type Input = RegionHandle;
    type Output = Vec<u8>;
}

/// Is never answered: these calls are in flight when clients die.
struct Hang;

impl Procedure for Hang {
    const NAME: &'static str = "test.hang";
    type Input = ();
    type Output = ();
}

/// The test that these processes run.
const TEST: &str = "be_the_server_or_its_clients";
const PROCESSES: usize = 20;
const CLIENTS: usize = 50;
/// Between two looks of a client, so that a thousand of them leave the server a share of two processors.
const PAUSE: Duration = Duration::from_millis(10);
/// Of every size that is carried in another way.
const SIZES: [usize; 4] = [0, 100, 10_000, 300_000];
/// Longer than anything takes on a loaded machine.
const LONG: Duration = Duration::from_secs(60);
/// Tells a process that it is one of clients.
const TARGET: &str = "ROPEWALK_TEST_TARGET";

/// Tells a process, and the clients that it starts, by which ways they reach each other.
const TRANSPORTS: &str = "ROPEWALK_TEST_TRANSPORTS";

fn transports() -> Transports {
    let named = env::var(TRANSPORTS).unwrap();
    Transports {
        tcp: named.contains("tcp"),
        shm: named.contains("shm"),
        ..Transports::default()
    }
}

fn engine(rank: u32) -> Engine {
    let identity = Identity {
        role: Role::Rank,
        rank: Rank(rank),
        incarnation: Incarnation(0),
    };
    let mut options = EndpointOptions::new(JobId([1; 16]), JobKey::from_bytes([2; 32]), identity);
    options.transports = transports();
    // Twenty processes on a loaded machine may have to wait for their turn longer than for a dead peer.
    options.limits.heartbeat = Some(LONG);
    Engine::new(Endpoint::bind(options).unwrap())
}

mod over_tcp {
    /// See [`over`](super::over).
    #[test]
    fn a_thousand_clients_at_once_dying_at_random_leak_nothing() {
        super::over("tcp");
    }
}

mod over_shm {
    /// See [`over`](super::over).
    #[test]
    fn a_thousand_clients_at_once_dying_at_random_leak_nothing() {
        super::over("shm");
    }
}

mod over_either {
    /// See [`over`](super::over).
    #[test]
    fn a_thousand_clients_at_once_dying_at_random_leak_nothing() {
        super::over("tcp shm");
    }
}

/// A thousand clients are connected at once, in twenty processes, which are killed in random order while they call
/// and both sides pull; some clients go by themselves before. When all are gone the server has as many
/// descriptors, mappings and files in /dev/shm as before the first came, serves whoever comes next, and a second
/// thousand takes no more memory than the first.
fn over(transports: &str) {
    // Three times twenty processes at once would wait for each other for longer than anything shall take.
    let in_turn = fs::File::create(concat!(env!("CARGO_TARGET_TMPDIR"), "/thousand_clients.lock"));
    let in_turn = in_turn.unwrap();
    flock(&in_turn, FlockOperation::LockExclusive).unwrap();
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", TEST, "--nocapture"])
        .env(TRANSPORTS, transports);
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let done = String::from_utf8_lossy(&output.stdout).contains("nothing leaked");
    assert!(output.status.success() && done, "over {transports}: {stderr}");
}

/// Not a test, but the processes that the others start.
#[test]
fn be_the_server_or_its_clients() {
    if env::var_os(TRANSPORTS).is_none() {
        return;
    }
    allow_descriptors();
    if let Ok(target) = env::var(TARGET) {
        be_clients(&target.parse().unwrap());
    }
    serve_waves();
    println!("nothing leaked");
}

fn serve_waves() {
    let mut server = Server::new();
    // What the first client of all brings into being stays.
    server.wave(1, 1, 1);
    let before = Holdings::of_this_process();
    server.wave(PROCESSES, CLIENTS, 2);
    let after_first = server.settled(&before);
    server.wave(PROCESSES, CLIENTS, 3);
    let after_second = server.settled(&before);
    assert!(
        after_second.heap < after_first.heap + PROCESSES * CLIENTS * 100,
        "{after_first:?} and then {after_second:?}"
    );
    server.wave(1, 1, 4);
}

/// A pull in progress, and who waits for what it brings.
type Pull = (Transfer<Buffer>, Option<Responder<Vec<u8>>>);

struct Server {
    engine: Engine,
    region: RegionHandle,
    joined: Arc<Mutex<Vec<Responder<RegionHandle>>>>,
    pulls: Arc<Mutex<Vec<Pull>>>,
    exchanges: u64,
}

impl Server {
    fn new() -> Self {
        let mut engine = engine(0);
        let region = engine.expose(Bytes::from(vec![7; SIZES[3]]));
        let joined = Arc::<Mutex<Vec<_>>>::default();
        let joining = joined.clone();
        engine.serve_later::<Join>(move |_, _, (), responder| joining.lock().unwrap().push(responder));
        let pulls = Arc::<Mutex<Vec<_>>>::default();
        let pulling = pulls.clone();
        engine.serve_later::<Exchange>(move |engine, _, region, responder| {
            let into = Buffer::zeroed(region.length as usize);
            // The client may be gone by now.
            if let Ok(pull) = engine.pull(&region, 0, into, LONG) {
                pulling.lock().unwrap().push((pull, Some(responder)));
            }
        });
        let held = Mutex::new(Vec::new());
        engine.serve_later::<Hang>(move |_, _, (), responder| {
            let mut held = held.lock().unwrap();
            held.push(responder);
            // As a server would that gives up the oldest.
            if held.len() > 1000 {
                held.remove(0);
            }
        });
        Self {
            engine,
            region,
            joined,
            pulls,
            exchanges: 0,
        }
    }

    fn drive(&mut self) {
        self.engine.wait(Duration::from_millis(5));
        while self.engine.poll_lost_peer().is_some() {}
        self.pulls.lock().unwrap().retain_mut(|(pull, responder)| {
            match pull.try_take() {
                None => return true,
                Some(Ok(buffer)) => {
                    assert!(buffer.iter().all(|byte| *byte == 9), "a pull brought wrong bytes");
                    self.exchanges += 1;
                    (responder.take().unwrap()).answer(Ok(buffer.to_vec()));
                }
                Some(Err(_)) => {}
            }
            false
        });
    }

    fn drive_until(&mut self, what: &str, mut wanted: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !wanted(self) {
            self.drive();
            assert!(start.elapsed() < LONG, "{what} did not happen in time");
        }
    }

    /// Clients come, all of them are there at once, work, and die.
    fn wave(&mut self, processes: usize, clients: usize, seed: u64) {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let target = self.engine.address().to_string();
        let mut running: Vec<Clients> = (0..processes)
            .map(|_| Clients::start(&target, clients, &mut random))
            .collect();
        self.drive_until("the arrival of all clients", |server| {
            for clients in &mut running {
                clients.are_alive();
            }
            server.joined.lock().unwrap().len() == processes * clients
        });
        for responder in self.joined.lock().unwrap().drain(..) {
            responder.answer(Ok(self.region.clone()));
        }
        let exchanged = self.exchanges + (processes * clients) as u64 / 2;
        self.drive_until("work", |server| server.exchanges >= exchanged);
        while !running.is_empty() {
            let victim = running.swap_remove(random.next_u64() as usize % running.len());
            drop(victim);
            let pause = Instant::now() + Duration::from_micros(random.next_u64() % 20_000);
            while Instant::now() < pause {
                self.drive();
            }
        }
    }

    /// The holdings of the process once it holds no more than before.
    fn settled(&mut self, before: &Holdings) -> Holdings {
        let start = Instant::now();
        loop {
            self.drive();
            let now = Holdings::of_this_process();
            if now.is_no_more_than(before) && self.pulls.lock().unwrap().is_empty() {
                return now;
            }
            assert!(start.elapsed() < LONG, "of {before:?} there came to be {now:?}");
        }
    }
}

/// A process with many clients, killed when it is dropped.
struct Clients(Child);

impl Clients {
    fn start(target: &str, clients: usize, random: &mut Pcg64Mcg) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", TEST])
            .env(TARGET, target)
            .env("ROPEWALK_TEST_CLIENTS", clients.to_string())
            .env("ROPEWALK_TEST_SEED", random.next_u64().to_string())
            .stdout(std::io::stderr());
        Self(command.spawn().unwrap())
    }
}

impl Clients {
    /// # Panics
    /// If they are not: nobody killed them.
    fn are_alive(&mut self) {
        let gone = self.0.try_wait().unwrap();
        assert!(gone.is_none(), "clients ended by themselves: {gone:?}");
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.are_alive();
        }
        // It fails if they are gone.
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

fn number(variable: &str) -> u64 {
    env::var(variable).unwrap().parse().unwrap()
}

/// Calls and is pulled from until it is killed. Whoever is not needed any longer is gone after a minute, also if
/// nobody kills it.
fn be_clients(target: &Address) -> ! {
    let mut random = Pcg64Mcg::seed_from_u64(number("ROPEWALK_TEST_SEED"));
    let started = Instant::now();
    let count = number("ROPEWALK_TEST_CLIENTS") as usize;
    let mut clients: Vec<Client> = (0..count).map(|index| Client::new(index, target)).collect();
    let calls = clients
        .iter_mut()
        .map(|client| client.engine.call::<Join>(target, &(), LONG));
    let mut joins: Vec<Call<RegionHandle>> = calls.map(Result::unwrap).collect();
    while clients.iter().any(|client| client.region.is_none()) {
        for (client, join) in clients.iter_mut().zip(&mut joins) {
            client.engine.progress();
            if let Some(region) = join.try_take() {
                client.region = Some(region.unwrap());
            }
        }
        thread::sleep(PAUSE);
    }
    // One in ten goes when it likes.
    let mut leaves = count / 10;
    while started.elapsed() < LONG * 2 {
        for client in &mut clients {
            client.work(target, &mut random);
        }
        if leaves > 0 && random.next_u64().is_multiple_of(8) {
            let index = random.next_u64() as usize % clients.len();
            clients.swap_remove(index);
            leaves -= 1;
        }
        thread::sleep(PAUSE);
    }
    std::process::exit(1);
}

struct Client {
    engine: Engine,
    region: Option<RegionHandle>,
    exchange: Option<(Call<Vec<u8>>, RegionHandle)>,
    pull: Option<Transfer<Buffer>>,
    hanging: Vec<Call<()>>,
}

impl Client {
    fn new(index: usize, target: &Address) -> Self {
        let mut engine = engine(1 + index as u32);
        let hanging = vec![engine.call::<Hang>(target, &(), LONG).unwrap()];
        Self {
            engine,
            region: None,
            exchange: None,
            pull: None,
            hanging,
        }
    }

    fn work(&mut self, target: &Address, random: &mut Pcg64Mcg) {
        let size = SIZES[random.next_u64() as usize % SIZES.len()];
        if self.exchange.is_none() {
            let region = self.engine.expose(Bytes::from(vec![9; size]));
            let call = self.engine.call::<Exchange>(target, &region, LONG).unwrap();
            self.exchange = Some((call, region));
        }
        // Where a pull needs nothing of the server, only this keeps a thousand clients from using up the processors.
        if self.pull.is_none() && random.next_u64().is_multiple_of(16) {
            let region = self.region.as_ref().unwrap();
            let pull = self.engine.pull(region, 0, Buffer::zeroed(size), LONG);
            self.pull = Some(pull.unwrap());
        }
        self.engine.progress();
        if let Some((call, region)) = &mut self.exchange
            && let Some(result) = call.try_take()
        {
            assert!(result.unwrap().iter().all(|byte| *byte == 9));
            self.engine.withdraw(region).unwrap();
            self.exchange = None;
        }
        if let Some(result) = self.pull.as_mut().and_then(Transfer::try_take) {
            assert!(result.unwrap().iter().all(|byte| *byte == 7));
            self.pull = None;
        }
        self.hanging.retain_mut(|call| call.try_take().is_none());
    }
}

/// The resources of a process that it could forget to give back.
#[derive(Debug)]
struct Holdings {
    descriptors: usize,
    mappings: usize,
    shared_files: usize,
    /// In bytes. What tables have grown to stays, so that this is no part of what is waited for.
    heap: usize,
}

impl Holdings {
    fn of_this_process() -> Self {
        let entries = |folder: &str| fs::read_dir(folder).map_or(0, Iterator::count);
        Self {
            descriptors: entries("/proc/self/fd"),
            mappings: fs::read_to_string("/proc/self/maps")
                .unwrap()
                .lines()
                // The allocator's own, which come and go with the number of threads and the size of the heap.
                .filter(|line| line.contains(" rw-s ") || line.contains(" r--s ") || line.contains("memfd:"))
                .count(),
            shared_files: entries("/dev/shm"),
            heap: live_heap::live_bytes(),
        }
    }

    fn is_no_more_than(&self, before: &Self) -> bool {
        self.descriptors <= before.descriptors
            && self.mappings <= before.mappings
            && self.shared_files <= before.shared_files
    }
}

fn allow_descriptors() {
    let limits = getrlimit(Resource::Nofile);
    let allowed = Rlimit {
        current: limits.maximum,
        maximum: limits.maximum,
    };
    setrlimit(Resource::Nofile, allowed).unwrap();
}
