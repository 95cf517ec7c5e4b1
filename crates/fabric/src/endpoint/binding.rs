//! How an endpoint comes to be.

use std::{io, sync::Arc, time::Instant};

use rustix::event::epoll::EventFlags;

use super::{Endpoint, Heartbeat, HeartbeatCounts};
#[cfg(feature = "ofi")]
use crate::provider::ofi::{OfiListener, OfiProvider};
use crate::{
    Address, BindError, EndpointOptions, MemberKey, Peer, ProviderStatus, Waker,
    fences::Fences,
    fork_guard::ForkGuard,
    handshake::Introduction,
    inbox::Inbox,
    loopback::Loopback,
    peer_table::PeerTable,
    poller::{Poller, Ready, Source},
    provider::{Provider, stream::StreamProvider},
    region_table::RegionTable,
};

impl Endpoint {
    /// An endpoint that listens for its peers, close-on-exec.
    ///
    /// # Errors
    /// If the address cannot be listened on, names no single interface, none of the transports is available, or the
    /// system is out of descriptors.
    pub fn bind(options: EndpointOptions) -> Result<Self, BindError> {
        let address = options.bind;
        let failed = |source: io::Error| BindError::Io { address, source };
        let mut token_secret = [0; 32];
        let mut instance = [0; 8];
        for random in [&mut token_secret[..], &mut instance[..]] {
            getrandom::fill(random).map_err(|error| failed(io::Error::other(error)))?;
        }
        let instance = u64::from_le_bytes(instance);
        let poller = Poller::new(Source::Waker).map_err(|errno| failed(errno.into()))?;
        let fences = Fences::default();
        let mut binding = Binding {
            options: &options,
            key: Arc::new(options.key.clone()),
            fences: &fences,
            poller: &poller,
            instance,
            address: None,
            providers: Vec::new(),
            statuses: Vec::new(),
        };
        match &options.transports.ofi {
            Some(provider) => binding.bind_ofi(provider)?,
            None if options.transports.unix => binding.bind_unix()?,
            None => {
                binding.bind_tcp()?;
                binding.bind_shm()?;
                binding.leave_out("ofi", "not asked for");
            }
        }
        let Binding {
            address: Some(own),
            providers,
            statuses,
            ..
        } = binding
        else {
            return Err(BindError::NoTransport);
        };
        let waker = Waker::new().map_err(failed)?;
        poller
            .add(0, &waker, EventFlags::IN)
            .map_err(|errno| failed(errno.into()))?;
        let itself = Peer {
            address: own,
            identity: options.key.identity(),
            instance,
        };
        let mut peers = PeerTable::default();
        let itself_id = peers.intern(&itself.address);
        let itself = Arc::new(itself);
        if let Some(known) = peers.get_mut(itself_id) {
            known.proven = Some(itself.clone());
        }
        Ok(Self {
            fork_guard: ForkGuard::new().map_err(failed)?,
            providers,
            statuses,
            itself,
            itself_id,
            limits: options.limits,
            regions: RegionTable::new(token_secret),
            peers,
            fences,
            inbox: Inbox::new(instance),
            loopback: Loopback::default(),
            heartbeat: options.limits.heartbeat.map(Heartbeat::new),
            heartbeat_counts: HeartbeatCounts::default(),
            looked: None,
            now: Instant::now(),
            waker,
            poller,
            ready: Ready::default(),
            found: None,
        })
    }

    /// The forms of address that the providers reach.
    pub(super) fn reachable(&self) -> &'static str {
        let has = |name| self.providers.iter().any(|provider| provider.name() == name);
        if has("ofi") {
            return "ofi://PROVIDER/NAME of the same libfabric provider";
        }
        if has("unix") {
            return LOCAL_ADDRESSES;
        }
        match (has("tcp"), has("shm")) {
            (true, _) => "tcp://IP:PORT",
            (false, true) => LOCAL_ADDRESSES,
            (false, false) => "none",
        }
    }
}

/// What is reached by UNIX sockets.
const LOCAL_ADDRESSES: &str = "shm://NAME, unix://NAME or tcp://IP:PORT of this host";

/// An endpoint in the making.
struct Binding<'a> {
    options: &'a EndpointOptions,
    key: Arc<MemberKey>,
    fences: &'a Fences,
    poller: &'a Poller,
    instance: u64,
    /// Where peers reach it, once that is known.
    address: Option<Address>,
    /// The fastest first.
    providers: Vec<Box<dyn Provider>>,
    statuses: Vec<ProviderStatus>,
}

impl Binding<'_> {
    /// What is said to peers, and whether what follows is encrypted.
    fn introduction(&self, address: Address, encrypts: bool) -> Introduction {
        Introduction {
            job: self.options.job,
            key: Arc::clone(&self.key),
            peer: Peer {
                address,
                identity: self.key.identity(),
                instance: self.instance,
            },
            fences: self.fences.clone(),
            encrypts,
        }
    }

    fn leave_out(&mut self, name: &'static str, reason: &str) {
        self.statuses.push(ProviderStatus {
            name,
            unavailable: Some(reason.to_owned()),
        });
    }

    /// libfabric has ways of its own between processes of one host, so there is nothing beside it.
    fn bind_ofi(&mut self, provider: &str) -> Result<(), BindError> {
        if self.options.encrypt {
            return Err(BindError::Ofi {
                provider: provider.to_owned(),
                reason: "encryption is asked for, and nothing that goes over libfabric is encrypted: use tcp"
                    .to_owned(),
            });
        }
        self.leave_out("tcp", "libfabric is used instead");
        self.leave_out("shm", "libfabric is used instead");
        #[cfg(feature = "ofi")]
        {
            let failed = |reason: String| BindError::Ofi {
                provider: provider.to_owned(),
                reason,
            };
            let (listener, address) =
                OfiListener::open(provider, self.options).map_err(|error| failed(error.to_string()))?;
            let introduction = self.introduction(address.clone(), false);
            let provider = OfiProvider::new(listener, introduction, self.options)
                .map_err(|error| failed(error.to_string()))?;
            provider
                .watch(&self.poller.of(Source::Ofi))
                .map_err(|error| failed(error.to_string()))?;
            self.providers.push(Box::new(provider));
            self.address = Some(address);
            self.statuses.push(ProviderStatus {
                name: OfiProvider::NAME,
                unavailable: None,
            });
            Ok(())
        }
        #[cfg(not(feature = "ofi"))]
        Err(BindError::Ofi {
            provider: provider.to_owned(),
            reason: "this program was built without the feature `ofi` of ropewalk-fabric".to_owned(),
        })
    }

    /// Peers of this host only, and nothing shared with them.
    fn bind_unix(&mut self) -> Result<(), BindError> {
        for name in ["tcp", "shm", "ofi"] {
            self.leave_out(name, "UNIX sockets are used instead");
        }
        let failed = |source: io::Error| BindError::Io {
            address: self.options.bind,
            source,
        };
        let address = self.named_address("unix").map_err(failed)?;
        let listener = StreamProvider::listen_unix(&address).map_err(failed)?;
        let introduction = self.introduction(address.clone(), false);
        let poller = self.poller.of(Source::Shm);
        let provider = StreamProvider::new("unix", listener, introduction, self.options, poller)?;
        self.providers.push(Box::new(provider));
        self.address = Some(address);
        self.statuses.push(ProviderStatus {
            name: "unix",
            unavailable: None,
        });
        Ok(())
    }

    fn bind_tcp(&mut self) -> Result<(), BindError> {
        let mut unavailable = None;
        if self.options.transports.tcp {
            let (listener, address) = StreamProvider::listen_tcp(self.options.bind)?;
            let introduction = self.introduction(address.clone(), self.options.encrypt);
            let provider = StreamProvider::new(
                "tcp",
                listener,
                introduction,
                self.options,
                self.poller.of(Source::Tcp),
            )?;
            self.providers.push(Box::new(provider));
            self.address = Some(address);
        } else {
            unavailable = Some("not asked for".to_owned());
        }
        self.statuses.push(ProviderStatus {
            name: "tcp",
            unavailable,
        });
        Ok(())
    }

    /// Shared memory beside TCP is found under its address; if it cannot be had, TCP serves this host too.
    fn bind_shm(&mut self) -> Result<(), BindError> {
        let unavailable = if self.options.transports.shm {
            let beside = self.address.clone();
            match beside
                .clone()
                .map_or_else(|| self.named_address("shm"), Ok)
                .and_then(|address| {
                    let listener = StreamProvider::listen_unix(&address)?;
                    Ok((listener, address))
                }) {
                Ok((listener, address)) => {
                    let introduction = self.introduction(address.clone(), false);
                    let provider = StreamProvider::new(
                        "shm",
                        listener,
                        introduction,
                        self.options,
                        self.poller.of(Source::Shm),
                    )?;
                    self.providers.insert(0, Box::new(provider));
                    self.address = Some(address);
                    None
                }
                Err(error) if beside.is_some() => Some(error.to_string()),
                Err(source) => {
                    let address = self.options.bind;
                    return Err(BindError::Io { address, source });
                }
            }
        } else {
            Some("not asked for".to_owned())
        };
        self.statuses.push(ProviderStatus {
            name: "shm",
            unavailable,
        });
        Ok(())
    }

    /// The address of an endpoint that only this host can reach.
    fn named_address(&self, provider: &str) -> io::Result<Address> {
        let name = match &self.options.name {
            Some(name) => name.clone(),
            None => {
                let mut random = [0; 16];
                getrandom::fill(&mut random).map_err(io::Error::other)?;
                format!("{:032x}", u128::from_le_bytes(random))
            }
        };
        format!("{provider}://{name}").parse().map_err(io::Error::other)
    }
}
