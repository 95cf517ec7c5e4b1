//! How an endpoint comes to be.

use std::{error::Error, io, os::fd::AsFd, sync::Arc, time::Instant};

use rustix::event::epoll::EventFlags;

use super::{Endpoint, Heartbeat, HeartbeatCounts, Wakeup};
use crate::{
    Address, BindError, EndpointOptions, MemberKey, Peer, ProviderStatus, Waker,
    fences::Fences,
    fork_guard::ForkGuard,
    handshake::Introduction,
    inbox::Inbox,
    loopback::Loopback,
    peer_table::PeerTable,
    poller::{Poller, Source},
    provider::{Provider, stream::StreamProvider},
    region_table::RegionTable,
};

impl Endpoint {
    /// An endpoint that listens for its peers, close-on-exec.
    ///
    /// # Errors
    /// If the address cannot be listened on, names no single interface, none of the transports is available, the
    /// options ask for a provider of another crate, or the system is out of descriptors.
    pub fn bind(options: EndpointOptions) -> Result<Self, BindError> {
        if let Some(provider) = options.transports.external {
            return Err(BindError::Unknown { provider });
        }
        Self::bind_by(&options, |binding| {
            if binding.options.transports.unix {
                return binding.bind_unix();
            }
            binding.bind_tcp()?;
            binding.bind_shm()
        })
    }

    /// As [`bind`](Self::bind), with the provider `name` of another crate for endpoints that
    /// [ask for it](crate::Transports::external). `open` is given the choice behind the name; it returns the provider
    /// and the address at which peers reach it. Such an endpoint has no other provider.
    ///
    /// # Errors
    /// As for that, and if `open` fails.
    pub fn bind_with<E: Into<Box<dyn Error + Send + Sync>>>(
        options: EndpointOptions,
        name: &'static str,
        open: impl FnOnce(&str, &Binding<'_>) -> Result<(Box<dyn Provider>, Address), E>,
    ) -> Result<Self, BindError> {
        let Some(provider) = options.transports.external.clone() else {
            return Self::bind(options);
        };
        let choice = match provider.split_once(':') {
            Some((asked, choice)) if asked == name => choice,
            _ => return Err(BindError::Unknown { provider }),
        };
        if options.encrypt {
            return Err(BindError::Unencrypted { provider });
        }
        Self::bind_by(&options, |binding| {
            for other in ["tcp", "shm"] {
                binding.leave_out(other, &format!("{provider} is used instead"));
            }
            let (opened, address) = open(choice, binding).map_err(|source| BindError::External {
                provider: provider.clone(),
                source: source.into(),
            })?;
            binding.add(name, opened, address);
            Ok(())
        })
    }

    fn bind_by(
        options: &EndpointOptions,
        open: impl FnOnce(&mut Binding<'_>) -> Result<(), BindError>,
    ) -> Result<Self, BindError> {
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
            options,
            key: Arc::new(options.key.clone()),
            fences: &fences,
            poller: &poller,
            instance,
            address: None,
            providers: Vec::new(),
            statuses: Vec::new(),
        };
        open(&mut binding)?;
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
            now: Instant::now(),
            wakeup: Wakeup::new(waker, poller),
        })
    }
}

/// An endpoint in the making, as a provider sees it that is opened for it.
pub struct Binding<'a> {
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
    /// The options of the endpoint.
    pub fn options(&self) -> &EndpointOptions {
        self.options
    }

    /// The endpoint's words about itself in each handshake; peers reach it at `address`.
    pub fn introduction(&self, address: Address) -> Introduction {
        self.introduction_of(address, false)
    }

    /// Wakes the endpoint when this descriptor becomes readable.
    ///
    /// # Errors
    /// If the system is out of memory or allows no more.
    pub fn watch(&self, descriptor: impl AsFd) -> io::Result<()> {
        let poller = self.poller.of(Source::External);
        Ok(poller.add(0, descriptor, EventFlags::IN)?)
    }

    /// The introduction of this endpoint to its peers; `encrypts` says if the traffic after it is encrypted.
    fn introduction_of(&self, address: Address, encrypts: bool) -> Introduction {
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

    /// Adds a provider before the others, as the fastest, by which peers reach the endpoint at `address`.
    fn add(&mut self, name: &'static str, provider: Box<dyn Provider>, address: Address) {
        self.statuses.push(ProviderStatus {
            name,
            unavailable: None,
        });
        self.providers.insert(0, provider);
        self.address = Some(address);
    }

    /// Peers of this host only, and nothing shared with them.
    fn bind_unix(&mut self) -> Result<(), BindError> {
        for name in ["tcp", "shm"] {
            self.leave_out(name, "UNIX sockets are used instead");
        }
        let failed = |source: io::Error| BindError::Io {
            address: self.options.bind,
            source,
        };
        let address = self.named_address("unix").map_err(failed)?;
        let listener = StreamProvider::listen_unix(&address).map_err(failed)?;
        let introduction = self.introduction(address.clone());
        let poller = self.poller.of(Source::Shm);
        let provider = StreamProvider::new("unix", listener, introduction, self.options, poller)?;
        self.add("unix", Box::new(provider), address);
        Ok(())
    }

    fn bind_tcp(&mut self) -> Result<(), BindError> {
        if !self.options.transports.tcp {
            self.leave_out("tcp", "not asked for");
            return Ok(());
        }
        let (listener, address) = StreamProvider::listen_tcp(self.options.bind)?;
        let introduction = self.introduction_of(address.clone(), self.options.encrypt);
        let poller = self.poller.of(Source::Tcp);
        let provider = StreamProvider::new("tcp", listener, introduction, self.options, poller)?;
        self.add("tcp", Box::new(provider), address);
        Ok(())
    }

    /// Shared memory beside TCP is found under its address; if it cannot be had, TCP serves this host too.
    fn bind_shm(&mut self) -> Result<(), BindError> {
        if !self.options.transports.shm {
            self.leave_out("shm", "not asked for");
            return Ok(());
        }
        let address = match &self.address {
            Some(beside) => Ok(beside.clone()),
            None => self.named_address("shm"),
        };
        let listened = address.and_then(|address| Ok((StreamProvider::listen_unix(&address)?, address)));
        match listened {
            Ok((listener, address)) => {
                let introduction = self.introduction(address.clone());
                let poller = self.poller.of(Source::Shm);
                let provider = StreamProvider::new("shm", listener, introduction, self.options, poller)?;
                self.add("shm", Box::new(provider), address);
            }
            Err(error) if self.address.is_some() => self.leave_out("shm", &error.to_string()),
            Err(source) => {
                let address = self.options.bind;
                return Err(BindError::Io { address, source });
            }
        }
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
