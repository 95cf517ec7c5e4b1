//! One host's part in having copies: what it tells others, and what it does itself.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use ropewalk_checkpoint_core::{
    Held, History, Place, Record, is_safe,
    partner::{Fetch, Guard, GuardOptions, Inventory, Ready, plan_recovery},
};
use ropewalk_rpc::{Address, Endpoint, EndpointOptions, Engine, Fault, Handle, Responder, thread::Driver};

use crate::{
    depot::{Depot, Lister, base_of, read_manifest, root_of},
    files::{EntryKind, Files, RealFiles},
};

use super::{
    blocking::wait_for,
    copier::{ASK_TIMEOUT, Copier, with_causes},
    guarding, journals,
    partner_error::PartnerError,
    procedures::{
        Begin, Beginning, Listing, Orders, Piece, ReadJournal, ReadManifest, ReadPiece, Recover, Recovered,
        Stock, TakeStock,
    },
};

/// The service of one host: gives others what they ask for, recovers with them what a job starts from, and then guards
/// another host.
///
/// Every host of a job has one. When all know each other's addresses, host 0 calls [`recover`](Self::recover), and all
/// call [`guard`](Self::guard).
#[derive(Debug)]
pub struct Service {
    options: ServiceOptions,
    handle: Handle,
    shared: Arc<Shared>,
    /// Ends the thread when it is dropped.
    driver: Driver,
}

/// The options of the service of a host.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// The directory of the job's checkpoints on this host.
    pub directory: PathBuf,
    /// Which of the hosts this is.
    pub host: usize,
    /// The names of the hosts, in their order.
    pub names: Vec<String>,
    /// On which host each rank will run.
    pub host_of_rank: Vec<usize>,
    /// The number of the start.
    pub start: Option<u64>,
    /// After how many starts that led to no newer generation an older one is taken.
    pub restarts_max: u32,
}

/// The state that the handlers and the service's own threads share.
#[derive(Debug)]
struct Shared {
    depot: Mutex<Depot>,
    lister: Mutex<Lister>,
    beginning: Mutex<Option<Beginning>>,
    begun: Condvar,
    addresses: Mutex<Vec<Address>>,
}

/// A request that takes too long for the thread that answers.
enum Task {
    TakeStock(Responder<Stock>),
    Recover(Orders, Responder<Recovered>),
}

impl Service {
    /// Begins to answer other hosts.
    ///
    /// # Errors
    /// If the directory cannot be used, or the system gives no endpoint or thread.
    pub fn start(endpoint: EndpointOptions, options: ServiceOptions) -> Result<Self, PartnerError> {
        let shared = Arc::new(Shared {
            depot: Mutex::new(Depot::open(&options.directory, options.start)?),
            lister: Mutex::new(Lister::new(options.directory.clone())),
            beginning: Mutex::new(None),
            begun: Condvar::new(),
            addresses: Mutex::new(Vec::new()),
        });
        let mut engine = Engine::new(Endpoint::bind(endpoint)?);
        let (tasks, queue) = sync_channel(TASKS_MAX);
        serve(&mut engine, &options.directory, &shared, &tasks);
        let (driver, handle) = Driver::spawn(engine).map_err(PartnerError::Thread)?;
        let worker = Worker {
            host: options.host,
            directory: options.directory.clone(),
            names: options.names.clone(),
            handle: handle.clone(),
            shared: Arc::clone(&shared),
        };
        thread::Builder::new()
            .name("ropewalk-stock".to_owned())
            .spawn(move || worker.run(&queue))
            .map_err(PartnerError::Thread)?;
        Ok(Self {
            options,
            handle,
            shared,
            driver,
        })
    }

    /// Where other hosts reach this one.
    pub fn address(&self) -> &Address {
        self.handle.address()
    }

    /// Tells where each host is reached, this one included, in their order.
    pub fn set_addresses(&mut self, addresses: Vec<Address>) {
        *lock(&self.shared.addresses) = addresses;
    }

    /// Has all hosts take stock, plans what the job starts from, has hosts fetch what they lack, and lets all begin.
    ///
    /// # Errors
    /// If a host does not do its part: the job can be started without it.
    pub fn recover(&self) -> Result<Ready, PartnerError> {
        let addresses = lock(&self.shared.addresses).clone();
        let mut why = String::new();
        let mut generation = 0;
        for _ in 0..ROUNDS_MAX {
            let stocks = self.all::<TakeStock>(&addresses, &(), STOCK_TIMEOUT)?;
            let root = stocks.iter().find_map(|stock| stock.root.clone());
            let known: Vec<_> = stocks.iter().map(|stock| stock.journal).collect();
            let writer = self.options.host_of_rank.first().copied().unwrap_or(0);
            let inventories: Vec<_> = stocks.into_iter().map(|stock| stock.inventory).collect();
            let plan = plan_recovery(
                &inventories,
                &self.options.host_of_rank,
                self.options.restarts_max,
            );
            let orders = Orders {
                choice: plan.choice.clone(),
                fetches: plan.fetches.clone(),
                root: root.clone(),
                journal: journals::best_of(&known, writer).map(|best| (best, writer)),
            };
            let done = self.all::<Recover>(&addresses, &orders, RECOVER_TIMEOUT)?;
            if let Some(missing) = done.iter().find_map(|host| host.missing.clone()) {
                why = missing;
                generation = plan.choice.restore.map_or(0, |held| held.generation);
                continue;
            }
            let beginning = Beginning {
                base: plan.choice.restore.map(|held| held.generation),
                fallbacks: plan.fallbacks,
                next: plan.choice.next,
            };
            self.all::<Begin>(&addresses, &beginning, ASK_TIMEOUT)?;
            let all = |of: fn(Recovered) -> Vec<String>| {
                let hosts = done.iter().cloned().map(of).enumerate();
                let texts = hosts.flat_map(|(host, texts)| texts.into_iter().map(move |text| (host, text)));
                texts.collect()
            };
            return Ok(Ready {
                restore: plan.choice.restore,
                next: plan.choice.next,
                root: root.map(|root| PathBuf::from(OsStr::from_bytes(&root))),
                fetched: plan.fetches.len(),
                quarantined: all(|host| host.quarantined),
                stuck: all(|host| host.stuck),
                before: self.before(&addresses, writer),
            });
        }
        Err(PartnerError::NotFetched { generation, why })
    }

    /// The totals of the journal that a host goes on with, all starts before this one being over, as a line of a
    /// journal.
    fn before(&self, addresses: &[Address], writer: usize) -> Option<String> {
        let address = addresses.get(writer)?;
        let text = self
            .handle
            .call_blocking::<ReadJournal>(address, (), ASK_TIMEOUT)
            .ok()?;
        let mut history = History::read(&text);
        if let Some(start) = self.options.start {
            history.add(Record::Start { start });
        }
        Some(Record::Before(*history.totals()).encode())
    }

    /// Waits until host 0 has let all begin. Then copies the saves of another host's ranks, and removes old
    /// generations, until the process ends. `say` is told what a user should know; `newest` of each newer
    /// generation that all ranks have.
    ///
    /// # Errors
    /// If host 0 does not let this one begin in time.
    pub fn guard(
        &self,
        mut say: impl FnMut(String),
        mut newest: impl FnMut(Held),
    ) -> Result<std::convert::Infallible, PartnerError> {
        let beginning = self.wait_for_begin()?;
        let addresses = lock(&self.shared.addresses).clone();
        let guard = Guard::new(GuardOptions {
            host: self.options.host,
            hosts: addresses.len(),
            host_of_rank: self.options.host_of_rank.clone(),
            base: beginning.base,
            fallbacks: beginning.fallbacks,
            next: beginning.next,
        });
        let copier = Copier {
            handle: &self.handle,
            depot: &self.shared.depot,
            addresses: &addresses,
            names: &self.options.names,
        };
        guarding::run(guard, &copier, &self.options.directory, &mut say, &mut newest)
    }

    /// Stops answering.
    pub fn stop(self) {
        drop(self.driver);
    }

    fn wait_for_begin(&self) -> Result<Beginning, PartnerError> {
        let beginning = lock(&self.shared.beginning);
        let waited =
            (self.shared.begun).wait_timeout_while(beginning, BEGIN_TIMEOUT, |beginning| beginning.is_none());
        let (beginning, _) = waited.unwrap_or_else(PoisonError::into_inner);
        beginning.clone().ok_or(PartnerError::NotBegun)
    }

    /// Calls all hosts at once, and gives their answers in order.
    fn all<P>(
        &self,
        addresses: &[Address],
        input: &P::Input,
        timeout: Duration,
    ) -> Result<Vec<P::Output>, PartnerError>
    where
        P: ropewalk_rpc::Procedure<Input: Clone + Send + 'static, Output: Send + 'static> + 'static,
    {
        let calls: Vec<_> = addresses
            .iter()
            .map(|address| self.handle.call::<P>(address, input.clone(), timeout))
            .collect();
        let answers = calls.into_iter().enumerate();
        answers
            .map(|(host, call)| {
                let host = self.options.names[host].clone();
                wait_for(call).map_err(|source| PartnerError::Call { host, source })
            })
            .collect()
    }
}

fn serve(engine: &mut Engine, directory: &Path, shared: &Arc<Shared>, tasks: &SyncSender<Task>) {
    let queue = tasks.clone();
    engine.serve_later::<TakeStock>(move |_, _, (), responder| submit(&queue, Task::TakeStock(responder)));
    let queue = tasks.clone();
    engine.serve_later::<Recover>(move |_, _, orders, responder| {
        submit(&queue, Task::Recover(orders, responder));
    });
    let listed = Arc::clone(shared);
    let at = directory.to_owned();
    engine.serve::<Listing>(move |_, ()| {
        let parts = lock(&listed.lister).parts().map_err(Fault::new)?;
        let inventory = Inventory {
            parts: parts.into_iter().collect(),
            ..Inventory::default()
        };
        Ok(stock(inventory, &at))
    });
    let at = directory.to_owned();
    engine.serve::<ReadJournal>(move |_, ()| {
        let known = journals::known(&at).map_err(Fault::new)?;
        Ok(known.map_or_else(Bytes::new, |(_, history)| history.encode().into()))
    });
    let at = directory.to_owned();
    engine
        .serve::<ReadManifest>(move |_, part| read_manifest(&at, &part).map(Bytes::from).map_err(Fault::new));
    let at = directory.to_owned();
    engine.serve::<ReadPiece>(move |_, piece| read_piece(&at, &piece).map(Bytes::from).map_err(Fault::new));
    let begun = Arc::clone(shared);
    engine.serve::<Begin>(move |_, beginning| {
        *lock(&begun.beginning) = Some(beginning);
        begun.begun.notify_all();
        Ok(())
    });
}

/// Leaves a task to the worker. Others wait for the thread that does this, and so it does not wait for room.
fn submit(tasks: &SyncSender<Task>, task: Task) {
    match tasks.try_send(task) {
        // If the worker is gone the responder is dropped, which answers too.
        Ok(()) | Err(TrySendError::Disconnected(_)) => {}
        Err(TrySendError::Full(Task::TakeStock(responder))) => responder.answer(Err(too_many())),
        Err(TrySendError::Full(Task::Recover(_, responder))) => responder.answer(Err(too_many())),
    }
}

fn too_many() -> Fault {
    Fault::new(format_args!(
        "{TASKS_MAX} other requests to take stock or recover wait on this host"
    ))
}

fn stock(inventory: Inventory, directory: &Path) -> Stock {
    Stock {
        inventory,
        root: root_of(directory).map(|root| root.into_os_string().into_vec()),
        journal: None,
    }
}

/// A piece of a file of a part; shorter than asked for if the file is.
fn read_piece(directory: &Path, piece: &Piece) -> io::Result<Vec<u8>> {
    if !is_safe(&piece.path) || piece.length > Piece::LENGTH_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let place = if piece.is_inside {
        Place::Inside
    } else {
        Place::InPlace
    };
    let base = base_of(directory, &piece.part, place)?;
    let path = base.join(OsStr::from_bytes(&piece.path));
    if RealFiles.kind(&path)? != EntryKind::File {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(piece.offset))?;
    let mut bytes = Vec::with_capacity(piece.length as usize);
    file.take(piece.length.into()).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The thread that reads and hashes.
struct Worker {
    host: usize,
    directory: PathBuf,
    names: Vec<String>,
    handle: Handle,
    shared: Arc<Shared>,
}

impl Worker {
    fn run(&self, queue: &Receiver<Task>) {
        while let Ok(task) = queue.recv() {
            match task {
                Task::TakeStock(responder) => {
                    let mut depot = lock(&self.shared.depot);
                    let stock = depot.inventory().map(|found| Stock {
                        // One that cannot be read is none.
                        journal: journals::known(&self.directory)
                            .ok()
                            .flatten()
                            .map(|(knows, _)| knows),
                        ..stock(found, &self.directory)
                    });
                    responder.answer(stock.map_err(Fault::new));
                }
                Task::Recover(orders, responder) => responder.answer(self.recover(&orders)),
            }
        }
    }

    fn recover(&self, orders: &Orders) -> Result<Recovered, Fault> {
        let addresses = lock(&self.shared.addresses).clone();
        let copier = Copier {
            handle: &self.handle,
            depot: &self.shared.depot,
            addresses: &addresses,
            names: &self.names,
        };
        let root = orders.root.as_deref().map(OsStr::from_bytes).map(PathBuf::from);
        let own = orders.fetches.iter().filter(|fetch| fetch.to == self.host);
        for &Fetch { part, from, .. } in own {
            if let Err(error) = copier.copy_below(from, &part, root.clone()) {
                return Ok(Recovered {
                    quarantined: Vec::new(),
                    stuck: Vec::new(),
                    missing: Some(with_causes(&error)),
                });
            }
        }
        let put_aside = lock(&self.shared.depot).apply(&orders.choice);
        let mut put_aside = put_aside.map_err(Fault::new)?;
        if let Some((from, to)) = orders.journal
            && to == self.host
            && let Err(error) = copier.go_on_with_journal(from, &self.directory)
        {
            // The job can do without what it has learned.
            put_aside.stuck.push(with_causes(&error));
        }
        let quarantined = put_aside.quarantined.iter();
        Ok(Recovered {
            quarantined: quarantined.map(|path| path.display().to_string()).collect(),
            stuck: put_aside.stuck,
            missing: None,
        })
    }
}

/// Nothing that panics leaves what is behind a lock half done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// To read and hash all that a host has; one that dies is noticed earlier.
const STOCK_TIMEOUT: Duration = Duration::from_secs(3600);

/// To fetch what ranks need, and hash it.
const RECOVER_TIMEOUT: Duration = Duration::from_secs(4 * 3600);

/// The longest that all hosts together may take until ranks can start.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(5 * 3600);

/// So many requests may wait for the worker; whoever makes one beyond is told. Host 0 makes two in each round, one
/// after the answer to the other, so that more wait only if it has given some up.
const TASKS_MAX: usize = 2 * ROUNDS_MAX;

/// How often hosts plan anew because a part was lost while it was fetched.
const ROUNDS_MAX: usize = 3;
