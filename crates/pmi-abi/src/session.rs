//! The process's one connection to its process manager, or what stands for it where there is none.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ropewalk_pmi::{Dialect, ProcessMapping, Spawn, Spawned};
use ropewalk_pmi_client::{Client, is_key};

use crate::Status;

/// The process among its like.
#[derive(Debug)]
pub enum Session {
    /// Nobody started the process as a part of something: it is a job of one, with all it puts.
    Alone(Alone),
    /// There is a process manager.
    Managed(Box<Client>),
}

/// The values, published names and node attributes of a process without a process manager.
#[derive(Debug, Default)]
pub struct Alone {
    values: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    names: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    node: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
}

static SESSION: Mutex<Option<Arc<Session>>> = Mutex::new(None);

/// A wait ends when what it waits for comes or the process manager is gone, who watches over all the others. There is
/// no other deadline in the interface of PMI.
const PATIENCE: Duration = Duration::from_secs(365 * 24 * 3600);

/// Connects the process, once; a second time gives the same.
///
/// # Errors
/// If there is a process manager, and it cannot be spoken to.
pub fn open(dialect: Dialect) -> Result<Arc<Session>, Status> {
    let mut session = locked();
    if let Some(session) = &*session {
        return Ok(session.clone());
    }
    let found = match Client::from_env_speaking(dialect) {
        Ok(found) => found,
        Err(error) => {
            // C gets a number only.
            eprintln!("ropewalk: PMI cannot be used: {error}");
            return Err(Status::INIT);
        }
    };
    let opened = Arc::new(match found {
        None => Session::Alone(Alone::default()),
        Some(client) => {
            client.set_timeout(PATIENCE);
            Session::Managed(Box::new(client))
        }
    });
    *session = Some(opened.clone());
    Ok(opened)
}

/// The process's session.
///
/// # Errors
/// If it was not opened, or is closed.
pub fn session() -> Result<Arc<Session>, Status> {
    locked().clone().ok_or(Status::INIT)
}

/// Returns true if there is a session.
pub fn is_open() -> bool {
    locked().is_some()
}

/// Ends the session.
///
/// # Errors
/// If there is none, or the process manager does not answer.
pub fn close() -> Result<(), Status> {
    let session = locked().take().ok_or(Status::INIT)?;
    match &*session {
        Session::Alone(_) => Ok(()),
        Session::Managed(client) => Ok(client.finalize()?),
    }
}

fn locked() -> MutexGuard<'static, Option<Arc<Session>>> {
    lock(&SESSION)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// The number of the process, from 0.
    pub fn rank(&self) -> u32 {
        self.client().map_or(0, Client::rank)
    }

    /// How many processes there are.
    pub fn size(&self) -> u32 {
        self.client().map_or(1, Client::size)
    }

    /// The name of the job's key-value space.
    pub fn kvsname(&self) -> &[u8] {
        self.client().map_or(b"singleton_kvs", Client::kvsname)
    }

    /// Returns true if another job spawned this one.
    pub fn is_spawned(&self) -> bool {
        self.client().is_some_and(Client::is_spawned)
    }

    /// The longest value, in bytes.
    pub fn value_size_max(&self) -> usize {
        self.client()
            .map_or(ropewalk_pmi::VALUE_SIZE_MAX, Client::value_size_max)
    }

    /// The index of the process's program among those of the job.
    ///
    /// # Errors
    /// If the process manager does not answer.
    pub fn appnum(&self) -> Result<i32, Status> {
        self.client().map_or(Ok(0), |client| Ok(client.appnum()?))
    }

    /// How many processes there could be, if that is known.
    ///
    /// # Errors
    /// If the process manager does not answer.
    pub fn universe_size(&self) -> Result<Option<u32>, Status> {
        self.client()
            .map_or(Ok(None), |client| Ok(client.universe_size()?))
    }

    /// Tells the others `value` under `key`.
    ///
    /// # Errors
    /// If one of them is too long, or the key is not plain.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Status> {
        let name = key_of(key)?;
        match self {
            Self::Alone(alone) => {
                lock(&alone.values).insert(key.to_vec(), value.to_vec());
                Ok(())
            }
            Self::Managed(client) => Ok(client.put(name, value)?),
        }
    }

    /// The value that was put under `key`, in the key-value space `job` or this job's.
    ///
    /// # Errors
    /// If the process manager does not answer.
    pub fn get(&self, job: Option<&[u8]>, key: &[u8]) -> Result<Option<Vec<u8>>, Status> {
        let name = key_of(key)?;
        match self {
            Self::Alone(alone) => Ok(lock(&alone.values).get(key).cloned()),
            Self::Managed(client) => Ok(client.get_bytes(job, name)?),
        }
    }

    /// Waits for all processes.
    ///
    /// # Errors
    /// If one of them will never come.
    pub fn fence(&self) -> Result<(), Status> {
        self.client().map_or(Ok(()), |client| Ok(client.fence()?))
    }

    /// The attribute of the job under `key`, from the process manager.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn job_attribute(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Status> {
        let key = key_of(key)?;
        match self.client() {
            None => Ok((key == "PMI_process_mapping").then(|| b"(vector,(0,1,1))".to_vec())),
            Some(client) => Ok(client.job_attribute(key)?),
        }
    }

    /// Tells the processes of the node.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn put_node_attribute(&self, key: &[u8], value: &[u8]) -> Result<(), Status> {
        let name = key_of(key)?;
        match self {
            Self::Alone(alone) => {
                lock(&alone.node).insert(key.to_vec(), value.to_vec());
                Ok(())
            }
            Self::Managed(client) => Ok(client.put_node_attribute(name, value)?),
        }
    }

    /// The value that a process of the node put under `key`. With `wait` the call waits until there is one.
    ///
    /// # Errors
    /// If the process manager does not answer, or a process alone would wait for ever.
    pub fn node_attribute(&self, key: &[u8], wait: bool) -> Result<Option<Vec<u8>>, Status> {
        let name = key_of(key)?;
        match self {
            Self::Alone(alone) => match lock(&alone.node).get(key).cloned() {
                None if wait => Err(Status::FAIL),
                found => Ok(found),
            },
            Self::Managed(client) => Ok(client.node_attribute(name, wait)?),
        }
    }

    /// Makes a port known.
    ///
    /// # Errors
    /// If the name is taken.
    pub fn publish(&self, service: &[u8], port: &[u8]) -> Result<(), Status> {
        match self {
            Self::Alone(alone) => match lock(&alone.names).entry(service.to_vec()) {
                Entry::Occupied(_) => Err(Status::OTHER),
                Entry::Vacant(name) => {
                    name.insert(port.to_vec());
                    Ok(())
                }
            },
            Self::Managed(client) => Ok(client.publish(service, port)?),
        }
    }

    /// The port of a name.
    ///
    /// # Errors
    /// If there is no such name.
    pub fn lookup(&self, service: &[u8]) -> Result<Vec<u8>, Status> {
        let found = match self {
            Self::Alone(alone) => lock(&alone.names).get(service).cloned(),
            Self::Managed(client) => client.lookup(service)?,
        };
        found.ok_or(Status::OTHER)
    }

    /// Forgets a name.
    ///
    /// # Errors
    /// If there is no such name.
    pub fn unpublish(&self, service: &[u8]) -> Result<(), Status> {
        match self {
            Self::Alone(alone) => match lock(&alone.names).remove(service) {
                Some(_) => Ok(()),
                None => Err(Status::OTHER),
            },
            Self::Managed(client) => Ok(client.unpublish(service)?),
        }
    }

    /// Starts more processes.
    ///
    /// # Errors
    /// If they cannot be started; without a process manager they never can.
    pub fn spawn(&self, spawn: &Spawn) -> Result<Spawned, Status> {
        match self.client() {
            None => Err(Status::FAIL),
            Some(client) => Ok(client.spawn(spawn)?),
        }
    }

    /// The process manager's connection.
    pub fn client(&self) -> Option<&Client> {
        match self {
            Self::Alone(_) => None,
            Self::Managed(client) => Some(client),
        }
    }

    /// The ranks on this process's node, in order.
    ///
    /// # Errors
    /// If the process manager does not answer.
    pub fn clique(&self) -> Result<Vec<u32>, Status> {
        let mapping = self.job_attribute(b"PMI_process_mapping")?;
        let mapping = mapping.and_then(|mapping| ProcessMapping::parse(&mapping).ok());
        let nodes = mapping.map(|mapping| mapping.nodes(self.size()));
        let rank = self.rank();
        let Some(node) = nodes.as_ref().and_then(|nodes| nodes.get(rank as usize)) else {
            // Who does not know where the others are is at least with itself.
            return Ok(vec![rank]);
        };
        let ranks = (0..).zip(nodes.iter().flatten());
        Ok(ranks
            .filter(|(_, other)| *other == node)
            .map(|(rank, _)| rank)
            .collect())
    }
}

fn key_of(key: &[u8]) -> Result<&str, Status> {
    let text = std::str::from_utf8(key).ok();
    text.filter(|_| is_key(key)).ok_or(Status::INVALID_KEY)
}
